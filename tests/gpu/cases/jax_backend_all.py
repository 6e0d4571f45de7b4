# SPDX-License-Identifier: Apache-2.0
# Situation: the first question to JAX starts its backend, which makes a context on every visible GPU
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.framework-opens-all
# With one GPU: ends with "out of range"
# Adapted: devices()[1] -> devices()[0]
# Fix: jax.config.update("jax_cuda_visible_devices", "1") before the first question, or export CUDA_VISIBLE_DEVICES
import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
from _contexts import report

mine = jax.devices()[1]  # CULPRIT
with jax.default_device(mine):
    total = jax.numpy.arange(64.0).sum().block_until_ready()
report(result=float(total))
