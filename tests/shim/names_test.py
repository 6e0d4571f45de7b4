# SPDX-License-Identifier: Apache-2.0
"""No function of the driver that makes a context or allocates goes unseen: each is wrapped, or is in
the list below with the reason why not. A new one, or a new form of an old one, fails here."""
import re
import subprocess

import driver_names
from shim_test import SOURCE, ShimTest, hooks_of_the_shim, run_tests

# What a function that makes a context or memory, or ends it, may be called.
SUSPECT = re.compile(
    r"Create|Alloc|Retain|Import|Open|GraphAdd|EnablePeer|FromGreenCtx|Register|Load|SetMemPool|Attach|"
    r"Ctx\w*(Destroy|Detach|Release|Reset)|Mem(Free|Release)|Array\w*Destroy|PoolDestroy")

NOT_WRAPPED = {
    "32-bit addresses of CUDA 2.0: no 64-bit program can use what they return":
        "cuMemAlloc cuMemAllocPitch cuMemFree",
    "numbers of CUPTI's for 32-bit drivers: the library has no such functions":
        "cu64Array3DCreate cu64ArrayCreate cu64MemAlloc cu64MemAllocPitch cu64MemFree cu64MemHostAlloc",
    "Windows only":
        "cuD3D9CtxCreate cuD3D9CtxCreateOnDevice cuD3D9CtxCreate_v2 cuD3D9RegisterResource "
        "cuD3D9RegisterVertexBuffer cuD3D10CtxCreate cuD3D10CtxCreateOnDevice cuD3D10CtxCreate_v2 "
        "cuD3D10RegisterResource cuD3D11CtxCreate cuD3D11CtxCreateOnDevice cuD3D11CtxCreate_v2 "
        "cuGraphicsD3D9RegisterResource cuGraphicsD3D10RegisterResource cuGraphicsD3D11RegisterResource",
    "host memory; the context that it needs is seen when it is made":
        "cuMemAllocHost cuMemAllocHost_v2 cuMemHostAlloc cuMemHostAlloc_v2 cuMemHostRegister cuMemHostRegister_v2 "
        "cuMemFreeHost",
    "one more reference to a context that is there already":
        "cuCtxAttach",
    "both contexts are there already, and no memory comes of it":
        "cuCtxEnablePeerAccess",
    "settings and questions":
        "cuCtxResetPersistingL2Cache cuDeviceRegisterAsyncNotification cuDeviceSetMemPool cuFuncIsLoaded "
        "cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams cuLogsRegisterCallback "
        "cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle cuMemSetMemPool "
        "cuModuleGetLoadingMode cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz",
    "handles within a context; what little memory they take belongs to the context":
        "cuEventCreate cuEventCreateFromEGLSync cuEventCreateFromNVNSync cuGreenCtxStreamCreate "
        "cuImportExternalSemaphore cuIpcOpenEventHandle cuMultiKernelCooperativeDomainCreate cuSemaphoreCreate "
        "cuStreamCreate cuStreamCreateForCaptureToCig cuStreamCreateWithPriority cuSurfObjectCreate "
        "cuSurfRefCreate cuTexObjectCreate cuTexRefCreate cuUserObjectCreate cuUserObjectRetain",
    "graphs, and nodes that allocate nothing themselves":
        "cuGraphAddBatchMemOpNode cuGraphAddChildGraphNode cuGraphAddDependencies cuGraphAddDependencies_v2 "
        "cuGraphAddEmptyNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode "
        "cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode cuGraphAddHostNode "
        "cuGraphAddKernelNode cuGraphAddKernelNode_v2 cuGraphAddMemFreeNode cuGraphAddMemcpyNode "
        "cuGraphAddMemsetNode cuGraphConditionalHandleCreate cuGraphCreate cuGraphRetainUserObject",
    "modules: the driver tells no size, and loads lazily; part of the remainder":
        "cuFuncLoad cuLibraryLoadData cuLibraryLoadFromFile cuLinkCreate cuLinkCreate_v2 cuModuleLoad "
        "cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary",
    "memory that graphics made, lent to CUDA":
        "cuGLRegisterBufferObject cuGraphicsEGLRegisterImage cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage "
        "cuGraphicsVDPAURegisterOutputSurface cuGraphicsVDPAURegisterVideoSurface",
    "one more handle of memory that is there already":
        "cuMemRetainAllocationHandle",
    "names without memory: that of cuMemCreate is bound to one, pointers come out of the other":
        "cuMulticastCreate cuMemPoolImportFromShareableHandle",
    "numbers of CUPTI's for what no public header declares":
        "cuMemPeerRegister cuNNSetAllocator",
}


def known():
    return {name: reason for reason, names in NOT_WRAPPED.items() for name in names.split()}


def unseen(names):
    """Those that may make or end something, are not wrapped and have no reason not to be."""
    wrapped = {name for name, _, _ in hooks_of_the_shim()}
    return sorted(name for name in names if SUSPECT.search(name) and name not in wrapped and name not in known())


class Names(ShimTest):
    """The driver's functions against our table."""

    def test_every_maker_is_wrapped_or_has_a_reason(self):
        names = driver_names.kept_names()
        self.assertGreater(len(names), 800)
        self.assertEqual(unseen(names), [])

    def test_the_headers_of_this_machine_hold_no_other(self):
        folder = driver_names.header_folder()
        if folder is None:
            self.skip("cuda-headers", "no cuda.h under /usr/local")
        self.assertEqual(unseen(driver_names.names_in(folder)), [])
        if driver_names.version(folder) == 13000 and (folder / "cupti_driver_cbid.h").exists():
            self.assertEqual(driver_names.names_in(folder), driver_names.kept_names(),
                             "run tests/shim/driver_names.py")

    def test_a_form_that_is_yet_to_come_is_told(self):
        names = ["cuCtxCreate_v5", "cuDevicePrimaryCtxRetain_v2", "cuMemAlloc_v3", "cuMemAllocAsync_v2_ptsz",
                 "cuMemCreate_v2", "cuArrayCreate_v3", "cuIpcOpenMemHandle_v3", "cuGraphAddMemAllocNode_v2",
                 "cuGraphAddNode_v3", "cuGreenCtxCreate_v2", "cuCtxCreateFromAnything", "cuMemFree_v3"]
        self.assertEqual(unseen(names + ["cuCtxCreate_v4", "cuDeviceGetCount"]), sorted(names))

    def test_structs_have_their_places_where_the_header_has_them(self):
        folder = driver_names.header_folder()
        if folder is None:
            self.skip("cuda-headers", "no cuda.h under /usr/local")
        source = self.folder / "layout.cc"
        # The header's names are its own: ours are read within a namespace that hides them.
        source.write_text("""
            #include <cuda.h>
            #include <stddef.h>
            #include <stdint.h>
            #define SAME(real, field, ours, place) static_assert(offsetof(real, field) == offsetof(ours_::ours, place))
            namespace ours_ {
            """ + self.declarations() + """
            }
            SAME(CUmemAllocationProp, location, CUmemAllocationProp, location);
            SAME(CUmemLocation, id, CUmemLocation, id);
            SAME(CUmemPoolProps, location, CUmemPoolProps, location);
            SAME(CUDA_MEM_ALLOC_NODE_PARAMS, poolProps, CUDA_MEM_ALLOC_NODE_PARAMS, pool);
            SAME(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize, CUDA_MEM_ALLOC_NODE_PARAMS, bytes);
            SAME(CUDA_MEM_ALLOC_NODE_PARAMS, dptr, CUDA_MEM_ALLOC_NODE_PARAMS, address);
            SAME(CUgraphNodeParams, alloc, CUgraphNodeParams, alloc);
            SAME(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, bytes);
            SAME(CUDA_ARRAY_DESCRIPTOR, NumChannels, CUDA_ARRAY_DESCRIPTOR, channels);
            SAME(CUDA_ARRAY3D_DESCRIPTOR, Format, CUDA_ARRAY3D_DESCRIPTOR, format);
            SAME(CUDA_ARRAY3D_DESCRIPTOR, Flags, CUDA_ARRAY3D_DESCRIPTOR, flags);
            static_assert(sizeof(CUipcMemHandle) == sizeof(ours_::CUipcMemHandle));
            static_assert(sizeof(CUmemAllocationProp) <= 256);
            static_assert(CU_MEM_LOCATION_TYPE_DEVICE == 1 && CU_MEM_ALLOCATION_TYPE_PINNED == 1);
            static_assert(CU_GRAPH_NODE_TYPE_MEM_ALLOC == 10 && CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == 9);
            static_assert(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM == 2);
            """)
        result = subprocess.run(["c++", "-std=c++20", "-fsyntax-only", f"-I{folder}", str(source)],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)

    def declarations(self):
        text = (SOURCE / "src/shim/driver_api.h").read_text()
        return text[text.index("using CUresult"):text.index("namespace corral::shim {")]

    def test_nothing_is_listed_in_vain(self):
        wrapped = {name for name, _, _ in hooks_of_the_shim()}
        names = driver_names.kept_names()
        self.assertEqual(sorted(known().keys() & wrapped), [])
        self.assertEqual(sorted(known().keys() - names), [])
        self.assertEqual(sorted(name for name in known() if not SUSPECT.search(name)), [])
        self.assertEqual(sorted(wrapped - names), [])


if __name__ == "__main__":
    run_tests("__main__")
