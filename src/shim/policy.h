// SPDX-License-Identifier: Apache-2.0
// `corral trace --deny`: which devices this process may make a context on (CORRAL_DENY,
// docs/trace-format.md). It keeps an honest program from straying by accident; it enforces nothing:
// a program that goes round the shim goes round this too.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/wire.h"

namespace corral::shim {

// Reads the variable and the rank, once in a process: when cuInit has succeeded. What the program
// changes later changes nothing. A text of another form: nothing is ever refused.
void load_policy();

extern int policy_phase;  // kPolicyUnread, …
enum PolicyPhase : int { kPolicyUnread, kPolicyTaking, kPolicyNone, kPolicyActive };

inline bool policy_is_active() {
  return __builtin_expect(__atomic_load_n(&policy_phase, __ATOMIC_ACQUIRE) == kPolicyActive, 0);
}

constexpr size_t kUuidBytes = 16;

// A GPU or a MIG instance as the policy names it.
struct PolicyEntry {
  uint8_t uuid[kUuidBytes];
  uint16_t gpu;  // nvidia-smi's number
  bool refused;
  bool is_mig;
};

// The rest holds while the policy is active.

// Null: the policy does not name that device.
const PolicyEntry* policy_entry(const wire::DeviceId& device);

// Whether a context on the device is refused. A device that the policy does not name never is.
bool policy_refuses(const wire::DeviceId& device);

bool policy_is_simulated();  // what is printed must say so
int policy_rank();           // of this process, where it decides; -1: it does not

}  // namespace corral::shim
