// SPDX-License-Identifier: Apache-2.0
// The bytes of a trace file and of a counters file, version 1: docs/trace-format.md in C++.
//
// Written by the shim inside the job, read by trace/reader. Nothing but plain structs of fixed
// width: no allocation, no other header of ours. All integers have the byte order of the machine
// that wrote them (little-endian on every machine that has an NVIDIA driver for Linux). A struct
// that is published never changes; a later writer may make it longer at the end, and readers take
// the missing end as zero.
#pragma once

#include <stdint.h>

namespace corral::wire {

constexpr char kTraceMagic[8] = {'C', 'O', 'R', 'R', 'A', 'L', 'T', 'R'};
constexpr char kCountersMagic[8] = {'C', 'O', 'R', 'R', 'A', 'L', 'C', 'N'};
constexpr uint32_t kVersion = 1;

// Every record and field begins at a multiple of this many bytes from the file's beginning.
constexpr uint32_t kAlignment = 8;
constexpr uint32_t kMaxHeaderBytes = 16384;
constexpr uint32_t kMaxRecordBytes = 65536;
constexpr uint16_t kRecordMark = 0xC0A7;  // tells a record's beginning from anything else

constexpr uint32_t align_up(uint32_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// At offset 0. Its strings follow it in this order without separators: exe, argv, cwd.
struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;        // header, strings and padding; the first record begins here
  uint64_t start_time_ticks;    // field 22 of /proc/PID/stat: clock ticks after boot; 0: unknown
  uint64_t pid_namespace;       // inode of /proc/self/ns/pid; 0: unknown
  int64_t opened_monotonic_ns;  // CLOCK_MONOTONIC when the file was opened
  int64_t opened_realtime_ns;   // CLOCK_REALTIME at the same moment
  uint32_t pid;                 // as the process itself sees it (in its pid namespace)
  uint32_t parent_pid;          // likewise; 0: the parent is outside of the namespace
  uint32_t ticks_per_second;    // of start_time_ticks
  uint16_t exe_bytes;           // /proc/self/exe
  uint16_t argv_bytes;          // /proc/self/cmdline: each word ends in a NUL
  uint16_t cwd_bytes;           // working folder at opening
  uint16_t flags;               // kHeaderArgvCut
};
static_assert(sizeof(FileHeader) == 72);
constexpr uint16_t kHeaderArgvCut = 1;  // argv was longer than what is kept

enum Kind : uint16_t {
  kInit = 1,          // InitPayload
  kContextMade = 2,   // ContextPayload
  kContextEnded = 3,  // ContextPayload
  kAllocation = 4,    // AllocationPayload
  kModule = 5,        // ModulePayload
  kLost = 6,          // LostPayload
  kExit = 7,          // ExitPayload
  kNoSuchDevice = 8,  // NoSuchDevicePayload
  kShortage = 9,      // ShortagePayload
};

// Begins every record; the payload of the kind follows, then fields until `size` is used up.
struct RecordHeader {
  uint32_t size;           // whole record in bytes, a multiple of kAlignment, <= kMaxRecordBytes
  uint16_t mark;           // kRecordMark
  uint16_t kind;           // Kind; a reader skips kinds that it does not know
  uint32_t tid;            // thread, as the process itself sees it
  uint32_t payload_bytes;  // of the kind's struct, a multiple of kAlignment; fields begin after it
  int64_t monotonic_ns;    // CLOCK_MONOTONIC: for makers and enders just after the driver returned
};
static_assert(sizeof(RecordHeader) == 24);

// A piece of variable length. The next one begins after `bytes` rounded up to kAlignment.
struct FieldHeader {
  uint16_t tag;    // Tag; a reader skips tags that it does not know
  uint16_t flags;  // kFieldCut
  uint32_t bytes;  // of data after this header, without the padding
};
static_assert(sizeof(FieldHeader) == 8);
constexpr uint16_t kFieldCut = 1;  // the data were longer than what is kept

enum Tag : uint16_t {
  kFunction = 1,       // text: the driver's function that was called
  kThreadName = 2,     // text: the thread's name in the kernel
  kVariable = 3,       // text: NAME=value, or NAME alone when it is not set
  kPythonSource = 4,   // text: how the Python frames were had, or why there are none
  kPythonFrame = 5,    // PythonFrameData, then file and function; innermost frame first
  kPythonOmitted = 6,  // uint64_t: frames left out between the frames before and after this field
  kNativeFrames = 7,   // NativeFrameData[]; innermost frame first
  kPath = 8,           // text: path of a module as the dynamic loader knows it
  kWorkingFolder = 9,  // text: working folder, where it is not the file header's
  // Of the main thread, read while it ran, in the event of another thread: like 4, 5 and 6.
  kMainThreadSource = 10,
  kMainThreadFrame = 11,
  kMainThreadOmitted = 12,
};

struct PythonFrameData {
  uint32_t line;            // from 1; 0: unknown
  uint16_t file_bytes;      // UTF-8; bytes that Python could not decode are kept as they were
  uint16_t function_bytes;  // UTF-8
};
static_assert(sizeof(PythonFrameData) == 8);

constexpr uint32_t kNoModule = 0xFFFFFFFF;
struct NativeFrameData {
  uint64_t offset;    // from the module's load base; the address itself when in no module
  uint32_t module;    // id of a kModule record anywhere in this file; kNoModule: in none
  uint32_t reserved;  // 0
};
static_assert(sizeof(NativeFrameData) == 16);

// A device as the driver names it to this process.
struct DeviceId {
  int32_t ordinal;   // CUDA's number in this process: depends on CUDA_VISIBLE_DEVICES; -1: unknown
  uint32_t flags;    // kDeviceUuid, kDevicePci, kDeviceInUse
  uint8_t uuid[16];  // of the GPU, or of the MIG instance
  char pci[16];      // "0000:00:07.0", NUL-padded
};
static_assert(sizeof(DeviceId) == 40);
constexpr uint32_t kDeviceUuid = 1;   // uuid is known
constexpr uint32_t kDevicePci = 2;    // pci is known
constexpr uint32_t kDeviceInUse = 4;  // in a counters file: the slot counts

// A cuInit: the first that succeeds, and the failed ones before it. Fields: the variables as they
// were before the driver read them, thread name, stack.
struct InitPayload {
  int32_t result;  // CUresult
  uint32_t flags;  // 0
};
static_assert(sizeof(InitPayload) == 8);

// A context made or ended. Fields: function, thread name, stack, and for a maker those of cuInit's
// variables that are not what they were then, and the working folder where it changed.
struct ContextPayload {
  DeviceId device;
  uint64_t context;  // CUcontext or CUgreenCtx as a number; 0: unknown or not made
  int32_t result;    // CUresult
  uint32_t flags;    // kContextPrimary, …
};
static_assert(sizeof(ContextPayload) == 56);
constexpr uint32_t kContextPrimary = 1;  // the device's primary context
constexpr uint32_t kContextFound = 2;    // primary: was active already; no hook saw it made
constexpr uint32_t kContextGreen = 4;    // a green context
constexpr uint32_t kContextView = 8;     // another handle of a context that has its own record
constexpr uint32_t kContextDenied = 16;  // refused by the shim (CORRAL_DENY): result is its answer

// One allocation. Fields: function, thread name, stack.
struct AllocationPayload {
  DeviceId device;
  uint64_t bytes;
  int32_t result;  // CUresult
  uint32_t flags;  // kAllocationFirst, …
};
static_assert(sizeof(AllocationPayload) == 56);
constexpr uint32_t kAllocationFirst = 1;    // the first on this device, of its kind
constexpr uint32_t kAllocationLarge = 2;    // at least kLargeAllocationBytes
constexpr uint32_t kAllocationShared = 4;   // opened, not made: memory of another process or API
constexpr uint32_t kAllocationManaged = 8;  // moves between host and devices
constexpr uint32_t kAllocationGraph = 16;   // a graph's node: made when the graph is launched
constexpr uint64_t kLargeAllocationBytes = 64ULL << 20;

// A file that native frames point into. Field: path (empty for the program itself: see exe).
struct ModulePayload {
  uint32_t id;
  uint32_t flags;      // 0
  uint64_t load_base;  // difference between addresses in memory and in the file's symbol table
};
static_assert(sizeof(ModulePayload) == 16);

enum LossReason : uint32_t {
  kLossBusy = 0,     // every buffer was in use for too long
  kLossWrite = 1,    // write(2) failed: disk full, folder gone, file size limit
  kLossLimit = 2,    // the limit of records of this kind or of file size was reached
  kLossReasons = 4,  // room in the counts, not a reason
};

// Records that could not be written. Totals since the file was opened: the last record counts.
struct LostPayload {
  uint64_t by_reason[kLossReasons];
};
static_assert(sizeof(LostPayload) == 32);

// The process ends in an orderly way, or unloads the driver. Events may still follow.
struct ExitPayload {
  uint64_t reserved;  // 0
};
static_assert(sizeof(ExitPayload) == 8);

// A device was asked for by a number that this process has none of (cuDeviceGet). Fields: function,
// thread name, stack.
struct NoSuchDevicePayload {
  int32_t ordinal;
  int32_t result;  // CUresult
};
static_assert(sizeof(NoSuchDevicePayload) == 8);

// An allocation that the driver refused for want of memory, or the end of that: the thread's next
// allocation on the device was of the same size and succeeded. Fields: function, thread name,
// stack.
struct ShortagePayload {
  DeviceId device;
  uint64_t bytes;       // asked for
  uint64_t held;        // DeviceCounters::bytes_now when the first of `failures` failed
  uint64_t given_back;  // with kShortageOver: of `held`, before the one that succeeded
  int32_t result;       // CUresult: CUDA_ERROR_OUT_OF_MEMORY, with kShortageOver CUDA_SUCCESS
  uint32_t flags;       // kShortageOver
  uint32_t failures;    // one after the other, by that thread, of that size
  uint32_t reserved;    // 0
};
static_assert(sizeof(ShortagePayload) == 80);
constexpr uint32_t kShortageOver = 1;

// The counters file: one CountersFile, mapped and changed in place by the process.
constexpr uint32_t kMaxDevices = 64;

struct DeviceCounters {
  DeviceId device;          // device.flags is set last: 0 means this slot is not in use
  uint64_t bytes_now;       // allocated and not freed
  uint64_t bytes_peak;      // highest bytes_now
  uint64_t allocations;     // successful
  uint64_t frees;           // successful, of allocations that were tracked
  uint64_t untracked;       // allocations not in bytes_now: no room in the table, or size unknown
  uint64_t shared;          // times that memory of another process or API was opened
  uint64_t managed_now;     // bytes of managed memory, wherever they lie; not in bytes_now
  uint64_t graph_nodes;     // allocation nodes that were added to graphs; not in bytes_now
  uint64_t out_of_memory;   // allocations that the driver refused for want of memory
  uint64_t shortages_over;  // of those, how often the same size succeeded next (ShortagePayload)
};
static_assert(sizeof(DeviceCounters) == 120);

struct CountersFile {
  char magic[8];
  uint32_t version;           // kVersion
  uint32_t header_bytes;      // offset of the first DeviceCounters
  uint32_t device_bytes;      // sizeof(DeviceCounters)
  uint32_t device_count;      // kMaxDevices; slot N is ordinal N
  uint64_t start_time_ticks;  // as in FileHeader
  uint32_t pid;               // as in FileHeader
  uint32_t reserved;          // 0
  uint64_t lost_by_reason[kLossReasons];
  uint64_t unknown_device;  // allocations whose device could not be told: in no device's numbers
  uint64_t foreign_frees;   // frees of what no hook saw allocated
  DeviceCounters devices[kMaxDevices];
};
static_assert(sizeof(CountersFile) == 88 + 64 * 120);

}  // namespace corral::wire
