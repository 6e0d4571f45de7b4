// SPDX-License-Identifier: Apache-2.0
#include "shim/policy.h"

#include <string.h>
#include <sys/mman.h>

#include "shim/device.h"
#include "shim/environment.h"
#include "trace/own_code.h"

namespace corral::shim {

int policy_phase;

namespace {

constexpr size_t kMaxEntries = 512;  // 64 GPUs with 7 MIG instances each
constexpr size_t kPolicyBytes = 32768;

// Does not change after policy_phase is kPolicyActive; a child of fork may keep it.
struct Policy {
  bool by_rank;
  bool simulated;
  int rank;   // -1: not known, so that nobody is refused
  int count;  // of devices that this process sees
  size_t entries_used;
  PolicyEntry entries[kMaxEntries];
};
Policy policy;

void* place_get_count;

// Reads the policy's text from front to back.
class Scanner {
 public:
  Scanner(const char* text, size_t bytes) : at_(text), end_(text + bytes) {}

  bool done() const { return at_ == end_; }
  bool take(const char* word) {
    if (!trace::begins_with(at_, static_cast<size_t>(end_ - at_), word)) return false;
    at_ += strlen(word);
    return true;
  }
  bool number(unsigned limit, unsigned& value) {
    value = 0;
    const char* const first = at_;
    for (; at_ != end_ && *at_ >= '0' && *at_ <= '9'; ++at_) {
      value = value * 10 + static_cast<unsigned>(*at_ - '0');
      if (value >= limit) return false;
    }
    return at_ != first;
  }
  bool uuid(uint8_t* bytes) {
    for (size_t i = 0; i < kUuidBytes; ++i) {
      const bool dash = i == 4 || i == 6 || i == 8 || i == 10;
      if (dash && !take("-")) return false;
      unsigned high;
      unsigned low;
      if (!digit(high) || !digit(low)) return false;
      bytes[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return true;
  }

 private:
  bool digit(unsigned& value) {
    if (at_ == end_) return false;
    const char c = *at_;
    if (c >= '0' && c <= '9') {
      value = static_cast<unsigned>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = static_cast<unsigned>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      value = static_cast<unsigned>(c - 'A' + 10);
    } else {
      return false;
    }
    ++at_;
    return true;
  }

  const char* at_;
  const char* end_;
};

// "gpus;0=GPU-2a4d…!;1=GPU-2b68…", "rank;simulated;0=GPU-2a4d…;…". False: of another form.
bool parse(const char* text, size_t bytes, Policy& out) {
  Scanner scan(text, bytes);
  if (scan.take("rank")) {
    out.by_rank = true;
  } else if (!scan.take("gpus")) {
    return false;
  }
  out.simulated = scan.take(";simulated");
  while (!scan.done()) {
    if (!scan.take(";") || out.entries_used == kMaxEntries) return false;
    PolicyEntry& entry = out.entries[out.entries_used++];
    unsigned gpu;
    if (!scan.number(1U << 16, gpu) || !scan.take("=")) return false;
    entry.gpu = static_cast<uint16_t>(gpu);
    entry.is_mig = scan.take("MIG-");
    if (!entry.is_mig && !scan.take("GPU-")) return false;
    if (!scan.uuid(entry.uuid)) return false;
    entry.refused = scan.take("!");
  }
  return true;
}

// As rules/expectation judges by the record of cuInit: the first that is set decides.
int local_rank() {
  constexpr size_t kCount = 4;
  const char* const names[kCount] = {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "MPI_LOCALRANKID"};
  char values[kCount][16];
  Variable variables[kCount];
  for (size_t i = 0; i < kCount; ++i) {
    variables[i] = {.name = names[i],
                    .value = values[i],
                    .capacity = sizeof values[i],
                    .bytes = 0,
                    .set = false,
                    .cut = false};
  }
  read_variables(variables, kCount);
  for (const Variable& variable : variables) {
    if (!variable.set) continue;
    Scanner scan(variable.value, variable.bytes);
    unsigned rank;
    return scan.number(1U << 16, rank) && scan.done() ? static_cast<int>(rank) : -1;
  }
  return -1;
}

struct Loading {
  char text[kPolicyBytes];
  Policy policy;
};

bool load(Loading& loading) {
  Variable variable = {.name = "CORRAL_DENY",
                       .value = loading.text,
                       .capacity = sizeof loading.text,
                       .bytes = 0,
                       .set = false,
                       .cut = false};
  read_variables(&variable, 1);
  if (!variable.set || variable.cut) return false;
  if (!parse(loading.text, variable.bytes, loading.policy)) return false;
  if (!loading.policy.by_rank) return true;
  auto* const get_count = ask<CUresult(int*)>(place_get_count, "cuDeviceGetCount");
  loading.policy.rank = local_rank();
  return get_count != nullptr && get_count(&loading.policy.count) == kSuccess;
}

}  // namespace

void load_policy() {
  if (__atomic_load_n(&policy_phase, __ATOMIC_ACQUIRE) != kPolicyUnread) return;
  const KeepErrno keep;
  // Too large for a thread's stack.
  void* const room =
      mmap(nullptr, sizeof(Loading), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return;
  auto& loading = *static_cast<Loading*>(room);
  const bool active = load(loading);
  int expected = kPolicyUnread;
  if (__atomic_compare_exchange_n(&policy_phase, &expected, kPolicyTaking, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE)) {
    if (active) memcpy(&policy, &loading.policy, sizeof policy);
    __atomic_store_n(&policy_phase, active ? kPolicyActive : kPolicyNone, __ATOMIC_RELEASE);
  }
  munmap(room, sizeof(Loading));
}

const PolicyEntry* policy_entry(const wire::DeviceId& device) {
  if (!(device.flags & wire::kDeviceUuid)) return nullptr;
  for (size_t i = 0; i < policy.entries_used; ++i) {
    if (memcmp(policy.entries[i].uuid, device.uuid, kUuidBytes) == 0) return &policy.entries[i];
  }
  return nullptr;
}

bool policy_refuses(const wire::DeviceId& device) {
  const PolicyEntry* const entry = policy_entry(device);
  if (entry == nullptr) return false;
  if (!policy.by_rank) return entry->refused;
  const bool judged = policy.count > 1 && policy.rank >= 0 && policy.rank < policy.count;
  return judged && device.ordinal != policy.rank;
}

bool policy_is_simulated() { return policy.simulated; }

int policy_rank() { return policy.by_rank ? policy.rank : -1; }

}  // namespace corral::shim
