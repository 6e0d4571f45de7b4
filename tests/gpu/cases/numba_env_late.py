# SPDX-License-Identifier: Apache-2.0
# Situation: Numba is asked whether there is a GPU, and the variable is set after that
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.late-env
# With one GPU: works
# Fix: export CUDA_VISIBLE_DEVICES before Python starts
import os

import numpy
from numba import cuda
from _contexts import report

available = cuda.is_available()
os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # CAUSE
work = cuda.to_device(numpy.arange(256.0))  # CULPRIT
report(result=[available, float(work.copy_to_host().sum())])
