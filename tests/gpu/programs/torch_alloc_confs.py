# SPDX-License-Identifier: Apache-2.0
"""Which of the settings on stdin (a JSON list) this PyTorch takes: a JSON list of null or its error.

Each is tried in a child that was forked after the import and before CUDA. A backend is chosen when
the library is loaded, so that none can be tried here; torch_memory.py is started with one instead.
"""
import json
import os
import sys

import torch


def set_conf(conf):
    setter = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or torch.cuda.memory._set_allocator_settings
    setter(conf)


def try_one(conf):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        error = None
        try:
            set_conf(conf)
        except Exception as caught:  # whatever it refuses with
            error = f"{type(caught).__name__}: {caught}".splitlines()[0]
        os.write(write, json.dumps(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "ended without an answer"


print(json.dumps({"version": torch.__version__, "answers": [try_one(conf) for conf in json.load(sys.stdin)]}))
