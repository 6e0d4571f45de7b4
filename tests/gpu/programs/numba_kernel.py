# SPDX-License-Identifier: Apache-2.0
"""Numba: a kernel compiled at run time, launched over several blocks."""

import numpy
from numba import cuda


@cuda.jit
def square(values):
    at = cuda.grid(1)
    if at < values.size:
        values[at] *= values[at]


values = cuda.to_device(numpy.arange(1000))
square[8, 128](values)
print(int(values.copy_to_host().sum()))
