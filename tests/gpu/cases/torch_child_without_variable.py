# SPDX-License-Identifier: Apache-2.0
# Situation: a helper is started with an environment of its own, without CUDA_VISIBLE_DEVICES
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.lost-variable
# With one GPU: works
# Fix: subprocess.run(..., env={**os.environ, "MODE": "eval"})
import os
import subprocess
import sys

import torch
from _contexts import report

if len(sys.argv) == 1:
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH", "CORRAL_SIM") if name in os.environ}
    kept.update((name, value) for name, value in os.environ.items() if name.startswith("CORRAL_"))
    child = subprocess.run([sys.executable, __file__, "evaluate"], env={**kept, "MODE": "eval"})
    report(role="rank 0")
    raise SystemExit(child.returncode)
evaluated = torch.ones(16).cuda()  # CULPRIT
report(result=float(evaluated.sum()), role="child")
