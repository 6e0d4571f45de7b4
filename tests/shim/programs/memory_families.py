# SPDX-License-Identifier: Apache-2.0
"""Every way to memory once, through the driver of memory_driver.c: `memory_families.py FAMILY…`."""
import ctypes
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
TIB = 1 << 40  # refused once; two of them twice


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, code)


def make(name, *arguments):
    """The number that the call gives out."""
    out = ctypes.c_uint64()
    call(name, ctypes.byref(out), *arguments)
    return out.value


def number(value):
    return ctypes.c_uint64(value)


def words(*values):
    return (ctypes.c_uint64 * len(values))(*values)


def pair(low, high):
    return low | high << 32


def plain():
    first = make("cuMemAlloc_v2", number(1000))
    pitch = ctypes.c_size_t()
    make("cuMemAllocPitch_v2", ctypes.byref(pitch), number(700), number(10), 4)  # 10 rows of 1024
    call("cuMemFree_v2", number(first))
    assert cuda.cuMemFree_v2(number(0xbad)) == 1


def managed():
    kept = make("cuMemAllocManaged", number(5000), 1)
    call("cuMemFree_v2", number(make("cuMemAllocManaged", number(7 * MIB), 1)))
    assert kept


def stream():
    call("cuMemFreeAsync", number(make("cuMemAllocAsync", number(1000), None)), None)
    make("cuMemAllocAsync", number(2000), number(0x1001))  # a stream of device 1
    make("cuMemAllocAsync_ptsz", number(3000), number(2))
    call("cuMemFreeAsync_ptsz", number(make("cuMemAllocAsync_ptsz", number(64 * MIB), None)), None)


def pool():
    def properties(kind, location, device):
        return words(pair(kind, 0), pair(location, device), *[0] * 9)
    of_one = make("cuMemPoolCreate", properties(1, 1, 1))
    of_host = make("cuMemPoolCreate", properties(1, 3, 0))
    of_managed = make("cuMemPoolCreate", properties(2, 1, 0))
    make("cuMemAllocFromPoolAsync", number(1000), number(of_one), None)
    host = make("cuMemAllocFromPoolAsync", number(2000), number(of_host), None)
    make("cuMemAllocFromPoolAsync", number(2000), number(of_managed), None)
    make("cuMemAllocFromPoolAsync_ptsz", number(4000), number(0x5001), None)  # of the driver's own, on device 1
    call("cuMemFreeAsync", number(host), None)
    call("cuMemPoolDestroy", number(of_one))


def virtual():
    def create(location, device, size):
        return make("cuMemCreate", number(size), words(pair(1, 0), pair(location, device), 0, 0), number(0))
    create(1, 1, 2 * MIB)
    call("cuMemRelease", number(create(1, 0, 4 * MIB)))
    call("cuMemRelease", number(create(2, 0, 6 * MIB)))  # on the host


def array():
    call("cuArrayDestroy", number(make("cuArrayCreate", (ctypes.c_uint32 * 4)(100, 10, 0x20, 4))))  # 16000
    make("cuArrayCreate_v2", words(1000, 0, pair(0x10, 2)))                    # 4000
    make("cuArray3DCreate", (ctypes.c_uint32 * 6)(10, 10, 10, 0x01, 1, 0))     # 1000
    make("cuArray3DCreate_v2", words(8, 0, 3, pair(0x03, 1), 0x01))            # 3 layers of 8: 96
    make("cuArray3DCreate_v2", words(10, 6, 0, pair(0x91, 4), 0))              # 3 × 2 blocks of 8: 48
    make("cuArray3DCreate_v2", words(10, 10, 0, pair(0xc4, 2), 0))             # two channels of 16 bits: 400
    make("cuArray3DCreate_v2", words(10, 10, 10, pair(0x01, 1), 0x40))         # sparse: nothing yet
    make("cuArray3DCreate_v2", words(10, 10, 0, pair(0xb0, 1), 0))             # video: unknown
    mipmap = make("cuMipmappedArrayCreate", words(4, 4, 0, pair(0x08, 1), 0), 3)     # 16 + 4 + 1
    make("cuMipmappedArrayCreate", words(4, 4, 6, pair(0x08, 1), 0x04), 2)           # six faces: 96 + 24
    call("cuMipmappedArrayDestroy", number(mipmap))


def shared():
    for _ in range(3):
        make("cuIpcOpenMemHandle", IpcHandle(b"a"), 1)
    make("cuIpcOpenMemHandle_v2", IpcHandle(b"a" * 63 + b"z"), 1)
    make("cuImportExternalMemory", words(1, 7, 0, 12345, 0))
    call("cuMemRelease", number(make("cuMemImportFromShareableHandle", number(5), 1)))
    call("cuMemFreeAsync", number(make("cuMemPoolImportPointer", number(1), number(2))), None)


def graph():
    def parameters(device, size):
        return [pair(1, 0), pair(1, device), *[0] * 9, 0, 0, size, 0]
    make("cuGraphAddMemAllocNode", None, None, number(0), words(*parameters(1, 5000)))
    make("cuGraphAddNode", None, None, number(0), words(10, 0, *parameters(1, 6000)))
    make("cuGraphAddNode_v2", None, None, None, number(0), words(10, 0, *parameters(0, 64 * MIB)))
    make("cuGraphAddNode_v2", None, None, None, number(0), words(0, 0, *parameters(0, 64 * MIB)))  # a kernel


def refused(name, *arguments):
    code = getattr(cuda, name)(ctypes.byref(ctypes.c_uint64()), *arguments)
    assert code == 2, (name, code)


def create(location, device, size):
    return [number(size), words(pair(1, 0), pair(location, device), 0, 0), number(0)]


def given_back():
    kept = make("cuMemAlloc_v2", number(3000))
    cached = make("cuMemAlloc_v2", number(5000))
    refused("cuMemAlloc_v2", number(TIB))
    call("cuMemFree_v2", number(cached))
    call("cuMemFree_v2", number(make("cuMemAlloc_v2", number(TIB))))
    for _ in range(2):
        refused("cuMemAllocAsync", number(2 * TIB), number(0x1001))  # on device 1
    make("cuMemAllocAsync", number(2 * TIB), number(0x1001))
    assert kept


def not_the_same():
    refused("cuMemAlloc_v2", number(TIB))
    make("cuMemAlloc_v2", number(10))
    make("cuMemAlloc_v2", number(TIB))  # after something else
    refused("cuMemAlloc_v2", number(TIB))


def everywhere():
    pitch = ctypes.c_size_t()
    refused("cuMemAllocPitch_v2", ctypes.byref(pitch), number(TIB >> 10), number(1 << 10), 4)
    make("cuMemAlloc_v2", number(TIB))
    refused("cuMemCreate", *create(1, 1, TIB))
    make("cuMemCreate", *create(1, 1, TIB))
    refused("cuMemCreate", *create(2, 0, TIB))  # on the host: no device's memory
    make("cuMemCreate", *create(2, 0, TIB))
    on_one = make("cuMemPoolCreate", words(pair(1, 0), pair(1, 1), *[0] * 9))
    refused("cuMemAllocFromPoolAsync", number(TIB), number(on_one), None)
    refused("cuMemAllocFromPoolAsync_ptsz", number(2 * TIB), number(0x5001), None)  # where, nobody tells


def on_a_thread(allocations):
    def run():
        for _ in range(allocations):
            make("cuMemAlloc_v2", number(20))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def among_threads():
    refused("cuMemAlloc_v2", number(TIB))
    on_a_thread(63)
    make("cuMemAlloc_v2", number(TIB))
    refused("cuMemAlloc_v2", number(TIB))
    on_a_thread(64)
    make("cuMemAlloc_v2", number(TIB))


def many_refusals():
    for _ in range(200):
        refused("cuMemAlloc_v2", number(1000 * TIB))


call("cuInit", 0)
for family in sys.argv[1:]:
    globals()[family]()
