// SPDX-License-Identifier: Apache-2.0
// Asks NVIDIA's driver for its GPUs through /dev/nvidiactl alone, which is open to every job: the
// driver's own calls of that node, without the node of a GPU. Prints one JSON object:
//
//   opened    nodes of GPUs that could be opened and are kept open (with --open), by device number
//   attached  whether NV_ESC_ATTACH_GPUS_TO_FD of all GPUs went well, which keeps them awake
//   devices   status of allocating a device (class 0x80) by the driver's instance; 0 is a device,
//             0x1b insufficient permissions, 0x22 no such device
//
// Numbers and layouts are those of NVIDIA's open kernel modules (nv-ioctl-numbers.h, nv_escape.h,
// nvos.h). No memory is asked of the device, and nothing of it is changed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { kCardInfo = 200, kAttachGpus = 212, kAlloc = 0x2B };
enum { kMostCards = 32, kClientClass = 0, kDeviceClass = 0x80, kNvidiaMajor = 195 };

struct card {
  uint8_t valid, pad[3];
  uint32_t pci[3];
  uint32_t gpu_id;
  uint16_t interrupt_line, pad2;
  uint64_t registers[2], frame_buffer[2];
  uint32_t minor;
  uint8_t name[10];
};

struct alloc {
  uint32_t client, parent, object, class_number;
  uint64_t parameters;
  uint32_t size, status;
};

struct device {
  uint32_t instance, share, target[2], flags, pad;
  uint64_t va[3];
  uint32_t va_mode, pad2;
};

static long call(int control, unsigned number, void* argument, unsigned size) {
  return ioctl(control, _IOC(_IOC_READ | _IOC_WRITE, 'F', number, size), argument);
}

static long allocate(int control, uint32_t client, uint32_t* object, uint32_t class_number,
                     void* parameters, unsigned size) {
  struct alloc one = {client, client, *object, class_number, (uintptr_t)parameters, size, 0};
  if (call(control, kAlloc, &one, sizeof one) != 0) return -1;
  *object = one.object;
  return one.status;
}

int main(int argc, char** argv) {
  const int keep_open = argc > 1 && strcmp(argv[1], "--open") == 0;
  const int control = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
  static struct card cards[kMostCards];
  if (control < 0 || call(control, kCardInfo, cards, sizeof cards) != 0) {
    perror("/dev/nvidiactl");
    return 1;
  }
  uint32_t ids[kMostCards] = {0};
  int count = 0, opened = 0;
  for (int i = 0; i < kMostCards; ++i) {
    if (!cards[i].valid) continue;
    ids[count++] = cards[i].gpu_id;
    char path[32];
    snprintf(path, sizeof path, "/dev/nvidia%u", cards[i].minor);
    const int node = keep_open ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat found;  // a cover of another number is not the GPU
    opened += node >= 0 && fstat(node, &found) == 0 && major(found.st_rdev) == kNvidiaMajor;
  }
  const long attached = call(control, kAttachGpus, ids, sizeof ids[0] * (unsigned)count);
  uint32_t client = 0;
  const long root = allocate(control, 0, &client, kClientClass, NULL, 0);
  printf("{\"cards\": %d, \"opened\": %d, \"attached\": %s, \"client\": %ld, \"devices\": [", count,
         opened, attached == 0 ? "true" : "false", root);
  for (int i = 0; i < count; ++i) {
    struct device parameters = {.instance = (uint32_t)i};
    uint32_t object = 0xcaf00000U + (uint32_t)i;
    printf("%s%ld", i ? ", " : "",
           allocate(control, client, &object, kDeviceClass, &parameters, sizeof parameters));
  }
  printf("]}\n");
  return 0;
}
