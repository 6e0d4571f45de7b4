// SPDX-License-Identifier: Apache-2.0
// Memory that another process or another API has made and that is opened here: it is counted where
// it was made. What is opened may lie on a GPU that this process was not meant to use.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

namespace {

template <class Original>
CUresult open(const char* function, Original original, CUdeviceptr* address, CUipcMemHandle handle,
              unsigned flags) {
  if (original == nullptr) return kNotFound;
  const CUresult result = original(address, handle, flags);
  if (result == kSuccess) opened_shared(function, 0, device_of_address(*address));
  return result;
}

}  // namespace

CORRAL_HOOK(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010);
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open("cuIpcOpenMemHandle", CORRAL_ORIGINAL(cuIpcOpenMemHandle), address, handle, flags);
}

CORRAL_HOOK(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return open("cuIpcOpenMemHandle_v2", CORRAL_ORIGINAL(cuIpcOpenMemHandle_v2), address, handle,
              flags);
}

CORRAL_HOOK(cuImportExternalMemory, "cuImportExternalMemory", 10000);
CUresult cuImportExternalMemory(CUexternalMemory* memory,
                                const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor) {
  const auto original = CORRAL_ORIGINAL(cuImportExternalMemory);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(memory, descriptor);
  if (result == kSuccess) {
    opened_shared("cuImportExternalMemory", descriptor->bytes, current_device());
  }
  return result;
}

// The two below are released by calls that also free memory of our own: they are remembered.

CORRAL_HOOK(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                        int handle_type) {
  const auto original = CORRAL_ORIGINAL(cuMemImportFromShareableHandle);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(handle, os_handle, handle_type);
  if (result == kSuccess) {
    allocated("cuMemImportFromShareableHandle", MemoryKind::handle, *handle, 0, kNoDevice);
    opened_shared("cuMemImportFromShareableHandle", 0, device_of_handle(*handle));
  }
  return result;
}

CORRAL_HOOK(cuMemPoolImportPointer, "cuMemPoolImportPointer", 11020);
CUresult cuMemPoolImportPointer(CUdeviceptr* address, CUmemoryPool pool, void* data) {
  const auto original = CORRAL_ORIGINAL(cuMemPoolImportPointer);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(address, pool, data);
  if (result == kSuccess) {
    allocated("cuMemPoolImportPointer", MemoryKind::address, *address, 0, kNoDevice);
    opened_shared("cuMemPoolImportPointer", 0, device_of_address(*address));
  }
  return result;
}
