# SPDX-License-Identifier: Apache-2.0
"""cuda-python: the driver's own interface: a context, memory, a fill, a copy back."""

import array

from cuda.bindings import driver


def must(answer):
    code, *values = answer
    if int(code) != 0:
        raise RuntimeError(str(code))
    return values[0] if values else None


must(driver.cuInit(0))
device = must(driver.cuDeviceGet(0))
context = must(driver.cuDevicePrimaryCtxRetain(device))
must(driver.cuCtxSetCurrent(context))
memory = must(driver.cuMemAlloc(4000))
must(driver.cuMemsetD32(memory, 7, 1000))
host = array.array("I", bytes(4000))
must(driver.cuMemcpyDtoH(host.buffer_info()[0], memory, 4000))
must(driver.cuMemFree(memory))
must(driver.cuDevicePrimaryCtxRelease(device))
print(sum(host))
