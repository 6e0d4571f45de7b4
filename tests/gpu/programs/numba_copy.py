# SPDX-License-Identifier: Apache-2.0
"""Numba: memory to the device and back. No kernel: compiling one needs what numpy 2.5 has dropped."""

import numpy
from numba import cuda

values = cuda.to_device(numpy.arange(1000))
print(int(values.copy_to_host().sum()))
