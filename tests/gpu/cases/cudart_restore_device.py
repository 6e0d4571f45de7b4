# SPDX-License-Identifier: Apache-2.0
# Situation: a guard in the C manner saves the current device, works on another one and puts the first back;
#   since CUDA 12 putting a device back makes its context, though nothing ever ran there
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.restored-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: cudaSetDevice(1) -> cudaSetDevice(0)
# Fix: put the device back only if it had a context (cuDevicePrimaryCtxGetState)
from cuda.bindings import runtime
from _contexts import report


def must(answer):
    code, *values = answer
    if int(code) != 0:
        raise RuntimeError(runtime.cudaGetErrorString(code)[1].decode())
    return values[0] if values else None


saved = must(runtime.cudaGetDevice())
must(runtime.cudaSetDevice(1))
pointer = must(runtime.cudaMalloc(4096))
must(runtime.cudaMemset(pointer, 0, 4096))
must(runtime.cudaSetDevice(saved))  # CULPRIT
report(result=pointer != 0)
