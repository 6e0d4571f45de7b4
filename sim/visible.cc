// SPDX-License-Identifier: Apache-2.0
// The list ends at the first entry that is no device; its form is fixed by how it begins; digits
// are read as strtoul reads them ("1gpu" is 1, "0-1" is 0); a repeated device is an error.
#include "visible.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

namespace corral::sim {
namespace {

constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;

struct Entry {
  const char* text;
  size_t length;
};

Entry next_entry(const char*& text) {
  const size_t length = strcspn(text, ",");
  Entry entry{text, length};
  text += length + (text[length] == ',' ? 1 : 0);
  while (entry.length > 0 && isspace(static_cast<unsigned char>(entry.text[entry.length - 1]))) {
    --entry.length;
  }
  return entry;
}

bool begins(const Entry& entry, const char* prefix) {
  const size_t length = strlen(prefix);
  return entry.length >= length && strncmp(entry.text, prefix, length) == 0;
}

// Whether `entry` is a beginning of `uuid`; hex digits match in either case, and there must be one.
bool abbreviates(const Entry& entry, const char* uuid, const char* prefix) {
  return entry.length > strlen(prefix) && entry.length <= strlen(uuid) &&
         strncasecmp(entry.text, uuid, entry.length) == 0;
}

int by_number(const VisibleList& candidates, const Entry& entry) {
  // strtoul would stop at the comma anyway; " 1" and "+1" are 1, "-0" is 0.
  char* end = nullptr;
  const long value = strtol(entry.text, &end, 10);
  const bool digits = end != entry.text && end <= entry.text + entry.length;
  return digits && value >= 0 && value < static_cast<long>(candidates.count)
             ? static_cast<int>(value)
             : -1;
}

int by_uuid(const State& state, const VisibleList& candidates, const Entry& entry) {
  int found = -1;
  for (unsigned i = 0; i < candidates.count; ++i) {
    if (!abbreviates(entry, state.gpus[candidates.device[i].gpu].uuid, "GPU-")) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

// "MIG-<uuid>", or the older "MIG-GPU-<uuid>/<gpu instance>/<compute instance>".
bool names_instance(const Gpu& gpu, const MigInstance& instance, const Entry& entry) {
  if (!begins(entry, "MIG-GPU-")) return abbreviates(entry, instance.uuid, "MIG-");
  const size_t uuid_length = strlen(gpu.uuid);
  if (entry.length < 4 + uuid_length || strncasecmp(entry.text + 4, gpu.uuid, uuid_length) != 0) {
    return false;
  }
  const char* rest = entry.text + 4 + uuid_length;
  if (*rest != '/') return false;
  char* end = nullptr;
  if (strtoul(rest + 1, &end, 10) != instance.gpu_instance || *end != '/') return false;
  return strtoul(end + 1, nullptr, 10) == instance.compute_instance;
}

VisibleList only_instance(const State& state, const VisibleList& candidates, const Entry& entry) {
  VisibleList list;
  for (unsigned i = 0; i < candidates.count; ++i) {
    const Visible& candidate = candidates.device[i];
    if (candidate.mig < 0) continue;
    const Gpu& gpu = state.gpus[candidate.gpu];
    if (!names_instance(gpu, gpu.mig[candidate.mig], entry)) continue;
    if (list.count == 1) return {.device = {}, .count = 0, .error = kNoDevice};
    list.device[list.count++] = candidate;
  }
  list.error = list.count == 0 ? kNoDevice : 0;
  return list;
}

// A process uses whole GPUs, or one instance. Without a choice by MIG UUID the instances are only
// taken where there is nothing else.
VisibleList whole_or_first(const VisibleList& candidates) {
  VisibleList list;
  for (unsigned i = 0; i < candidates.count; ++i) {
    if (candidates.device[i].mig < 0) list.device[list.count++] = candidates.device[i];
  }
  if (list.count == 0 && candidates.count > 0) list.device[list.count++] = candidates.device[0];
  return list;
}

}  // namespace

VisibleList visible_devices(const State& state, const VisibleList& candidates, const char* text) {
  VisibleList choice = whole_or_first(candidates);
  if (text == nullptr) {
    choice.error = choice.count == 0 ? kNoDevice : 0;
    return choice;
  }
  const bool uuids = strncmp(text, "GPU-", 4) == 0;
  VisibleList list;
  bool first = true;
  while (*text != '\0') {
    const Entry entry = next_entry(text);
    if (first && begins(entry, "MIG-")) return only_instance(state, candidates, entry);
    first = false;
    const int found = uuids ? by_uuid(state, choice, entry) : by_number(choice, entry);
    if (found < 0) break;
    for (unsigned i = 0; i < list.count; ++i) {
      if (list.device[i].gpu == choice.device[found].gpu) {
        return {.device = {}, .count = 0, .error = kInvalidDevice};
      }
    }
    list.device[list.count++] = choice.device[found];
  }
  list.error = list.count == 0 ? kNoDevice : 0;
  return list;
}

}  // namespace corral::sim
