# SPDX-License-Identifier: Apache-2.0
# Situation: CUDA_VISIBLE_DEVICES is set after JAX has started its backend
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.late-env
# With one GPU: works
# Fix: set it before the first JAX call, or export it
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
from _contexts import report

kind = jax.devices()[0].platform  # CULPRIT
os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # CAUSE
total = (jax.numpy.ones(32) * 3).sum().block_until_ready()
report(result=[kind, float(total)])
