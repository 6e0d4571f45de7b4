// SPDX-License-Identifier: Apache-2.0
// CUDA arrays. The driver lays them out as it likes; what is counted is what was asked for.
#include "shim/core.h"
#include "shim/hook.h"

using namespace corral::shim;

namespace {

// Flags of a three-dimensional array.
constexpr unsigned kLayered = 0x01, kCubemap = 0x04, kSparse = 0x40, kDeferredMapping = 0x80;

struct Block {
  unsigned side;   // texels of a block in each direction; 0: a form whose size we do not know
  unsigned bytes;  // of a block
};

// CUarray_format: 0x01 to 0x20 is one channel, 0x91 to 0x9e are compressed blocks of 4 by 4, 0xc0
// to 0xcb are whole texels; the rest are video formats of several planes.
Block block_of(int format, unsigned channels) {
  switch (format) {
    case 0x01:
    case 0x08:
      return {1, channels};
    case 0x02:
    case 0x09:
    case 0x10:
      return {1, 2 * channels};
    case 0x03:
    case 0x0a:
    case 0x20:
      return {1, 4 * channels};
    case 0x91:  // BC1
    case 0x92:
    case 0x97:  // BC4
    case 0x98:
      return {4, 8};
    default:
      break;
  }
  if (format >= 0x93 && format <= 0x9e) return {4, 16};
  if (format >= 0xc0 && format <= 0xcb) {
    const unsigned of_eight_bits = (format - 0xc0) % 6 < 3 ? 1 : 2;
    return {1, of_eight_bits << (format - 0xc0) % 3};
  }
  return {0, 0};
}

struct Shape {
  size_t width, height, depth;  // 0: the array does not have this direction
  int format;
  unsigned channels, flags;
};

size_t halved(size_t extent, unsigned level) {
  const size_t half = level < 64 ? extent >> level : 0;
  return half > 0 ? half : 1;
}

size_t blocks(size_t extent, unsigned side) { return (extent + side - 1) / side; }

void made(const char* function, const void* array, const Shape& shape, unsigned levels) {
  const uint64_t key = reinterpret_cast<uint64_t>(array);
  const CUdevice device = current_device();
  // Its memory is mapped later, from what cuMemCreate makes.
  if (shape.flags & (kSparse | kDeferredMapping)) {
    allocated(function, MemoryKind::handle, key, 0, kNoDevice);
    return;
  }
  const Block block = block_of(shape.format, shape.channels);
  if (block.side == 0) {
    allocated_of_unknown_size(function, MemoryKind::handle, key, device);
    return;
  }
  uint64_t bytes = 0;
  for (unsigned level = 0; level < levels; ++level) {
    // Layers and the faces of a cube stay as many as they are.
    const bool of_layers = shape.flags & (kLayered | kCubemap);
    bytes += blocks(halved(shape.width, level), block.side) *
             blocks(halved(shape.height, level), block.side) *
             halved(shape.depth, of_layers ? 0 : level) * block.bytes;
  }
  allocated(function, MemoryKind::handle, key, bytes, device);
}

template <class Original, class Descriptor>
CUresult make_flat(const char* function, Original original, CUarray* array,
                   const Descriptor* descriptor) {
  if (original == nullptr) return kNotFound;
  const CUresult result = original(array, descriptor);
  if (result == kSuccess) {
    made(function, *array,
         {.width = descriptor->width,
          .height = descriptor->height,
          .depth = 0,
          .format = descriptor->format,
          .channels = descriptor->channels,
          .flags = 0},
         1);
  }
  return result;
}

template <class Descriptor>
Shape shape_of(const Descriptor& descriptor) {
  return {.width = descriptor.width,
          .height = descriptor.height,
          .depth = descriptor.depth,
          .format = descriptor.format,
          .channels = descriptor.channels,
          .flags = descriptor.flags};
}

template <class Original, class Descriptor>
CUresult make_deep(const char* function, Original original, CUarray* array,
                   const Descriptor* descriptor) {
  if (original == nullptr) return kNotFound;
  const CUresult result = original(array, descriptor);
  if (result == kSuccess) made(function, *array, shape_of(*descriptor), 1);
  return result;
}

template <class Original>
CUresult destroy(Original original, void* array) {
  if (original == nullptr) return kNotFound;
  return free_memory(MemoryKind::handle, reinterpret_cast<uint64_t>(array),
                     [&] { return original(array); });
}

}  // namespace

CORRAL_HOOK(cuArrayCreate, "cuArrayCreate", 2000);
CUresult cuArrayCreate(CUarray* array, const CUDA_ARRAY_DESCRIPTOR_v1* descriptor) {
  return make_flat("cuArrayCreate", CORRAL_ORIGINAL(cuArrayCreate), array, descriptor);
}

CORRAL_HOOK(cuArrayCreate_v2, "cuArrayCreate", 3020);
CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  return make_flat("cuArrayCreate_v2", CORRAL_ORIGINAL(cuArrayCreate_v2), array, descriptor);
}

CORRAL_HOOK(cuArray3DCreate, "cuArray3DCreate", 2000);
CUresult cuArray3DCreate(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR_v1* descriptor) {
  return make_deep("cuArray3DCreate", CORRAL_ORIGINAL(cuArray3DCreate), array, descriptor);
}

CORRAL_HOOK(cuArray3DCreate_v2, "cuArray3DCreate", 3020);
CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return make_deep("cuArray3DCreate_v2", CORRAL_ORIGINAL(cuArray3DCreate_v2), array, descriptor);
}

CORRAL_HOOK(cuArrayDestroy, "cuArrayDestroy", 2000);
CUresult cuArrayDestroy(CUarray array) { return destroy(CORRAL_ORIGINAL(cuArrayDestroy), array); }

CORRAL_HOOK(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000);
CUresult cuMipmappedArrayCreate(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                unsigned levels) {
  const auto original = CORRAL_ORIGINAL(cuMipmappedArrayCreate);
  if (original == nullptr) return kNotFound;
  const CUresult result = original(array, descriptor, levels);
  // More levels than 64 halvings cannot be: the driver keeps as many as there are.
  if (result == kSuccess) {
    made("cuMipmappedArrayCreate", *array, shape_of(*descriptor), levels < 64 ? levels : 64);
  }
  return result;
}

CORRAL_HOOK(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return destroy(CORRAL_ORIGINAL(cuMipmappedArrayDestroy), array);
}
