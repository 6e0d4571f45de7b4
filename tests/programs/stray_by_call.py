# SPDX-License-Identifier: Apache-2.0
"""Works on cuda:1 and strays onto cuda:0 in the way that the argument says, or in none, on the stand-in for PyTorch; HOLD_S: seconds to stay."""
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "stand_ins/site-packages"))
import torch

way = sys.argv[1]


def serve():
    torch.cuda.synchronize()  # in a thread, which begins on device 0


if way == "thread":
    torch.cuda.set_device(1)
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
elif way == "late":
    torch.cuda.is_available()
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # too late
    torch.cuda.synchronize(0)
else:
    torch.cuda.synchronize(1)
if way == "synchronize":
    torch.cuda.synchronize()
elif way == "stream":
    torch.cuda.Stream()
elif way == "query":
    for number in range(2):
        torch.cuda.mem_get_info(number)
elif way == "load":
    torch.load("checkpoint.pt")
elif way == "barrier":
    torch.distributed.barrier()
elif way == "set_device":
    torch.cuda.set_device(0)
elif way == "import":
    import fastops  # noqa: F401
elif way == "none":
    torch.cuda.synchronize(1)
    torch.cuda.Stream(device=1)
    torch.load("checkpoint.pt", map_location=1)
    torch.distributed.barrier(device_ids=[1])
time.sleep(float(os.environ.get("HOLD_S", "0")))
