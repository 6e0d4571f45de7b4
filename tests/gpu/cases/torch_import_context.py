# SPDX-License-Identifier: Apache-2.0
# Situation: a library makes a tensor when it is imported, before the job has chosen its GPU
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.import
# With one GPU: ends with "invalid device ordinal"
# Adapted: set_device(1) -> set_device(0)
# Fix: export CUDA_VISIBLE_DEVICES, or choose the device before the import; tell the library's authors
import pathlib
import sys
import tempfile

import torch
from _contexts import report

folder = pathlib.Path(tempfile.mkdtemp(), "lib/python3/site-packages")
folder.mkdir(parents=True)
(folder / "fastops.py").write_text('import torch\n\nCAPABILITY = torch.zeros(1, device="cuda")\n')
sys.path.insert(0, str(folder))
import fastops  # CULPRIT

torch.cuda.set_device(1)
report(result=float(torch.ones(16, device="cuda").sum() + fastops.CAPABILITY.to("cuda")))
