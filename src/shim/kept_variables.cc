// SPDX-License-Identifier: Apache-2.0
#include "shim/kept_variables.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace corral::shim {
namespace {

constexpr const char* kNames[kKeptVariables] = {
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",          "LOCAL_RANK",     "RANK",
    "SLURM_LOCALID",        "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"};

// Room for a value of each.
struct Values {
  char visible[kVisibleBytes];
  char ranks[kKeptVariables - 1][kRankBytes];
};

void name_all(Variable* variables, char* visible, char (*ranks)[kRankBytes]) {
  for (size_t i = 0; i < kKeptVariables; ++i) {
    variables[i] = {.name = kNames[i],
                    .value = i == 0 ? visible : ranks[i - 1],
                    .capacity = i == 0 ? kVisibleBytes : kRankBytes,
                    .bytes = 0,
                    .set = false,
                    .cut = false};
  }
}

bool same(const KeptVariable& kept, const char* value, const Variable& now) {
  return kept.set == now.set && kept.bytes == now.bytes && memcmp(value, now.value, now.bytes) == 0;
}

// The working folder with a final NUL, in bytes; 0: the kernel does not tell.
size_t working_folder(char* buffer, size_t capacity) {
  const long bytes = syscall(SYS_getcwd, buffer, capacity);
  return bytes > 1 ? static_cast<size_t>(bytes) : 0;
}

uint64_t mark_of(const char* text, size_t bytes) {
  uint64_t mark = 0xCBF29CE484222325ULL;
  for (size_t i = 0; i < bytes; ++i) {
    mark = (mark ^ static_cast<unsigned char>(text[i])) * 0x100000001B3ULL;
  }
  return mark;
}

constexpr size_t kFolderBytes = 4096;

void add_folder_if_changed(State& state, EventRecord& event) {
  char folder[kFolderBytes];
  const size_t bytes = working_folder(folder, sizeof folder);
  if (bytes == 0 || mark_of(folder, bytes) == state.folder) return;
  event.text(wire::kWorkingFolder, folder);
}

}  // namespace

uint64_t working_folder_mark() {
  char folder[kFolderBytes];
  return mark_of(folder, working_folder(folder, sizeof folder));
}

void keep_variables(State& state) {
  Variable now[kKeptVariables];
  name_all(now, state.visible, state.ranks);
  read_variables(now, kKeptVariables);
  for (size_t i = 0; i < kKeptVariables; ++i) {
    state.kept[i] = {
        .set = now[i].set, .cut = now[i].cut, .bytes = static_cast<uint32_t>(now[i].bytes)};
  }
}

void add_kept_variables(State& state, EventRecord& event) {
  Variable variables[kKeptVariables];
  name_all(variables, state.visible, state.ranks);
  for (size_t i = 0; i < kKeptVariables; ++i) {
    variables[i].set = state.kept[i].set;
    variables[i].cut = state.kept[i].cut;
    variables[i].bytes = state.kept[i].bytes;
    event.variable(variables[i]);
  }
  add_folder_if_changed(state, event);
}

void add_what_changed(State& state, EventRecord& event) {
  if (__atomic_load_n(&state.init_phase, __ATOMIC_ACQUIRE) != kInitDone) return;
  add_folder_if_changed(state, event);
  const uint64_t mark = environment_mark();
  if (__atomic_load_n(&state.environment, __ATOMIC_RELAXED) == mark) return;
  Values values;
  Variable now[kKeptVariables];
  name_all(now, values.visible, values.ranks);
  read_variables(now, kKeptVariables);
  bool changed = false;
  for (size_t i = 0; i < kKeptVariables; ++i) {
    if (same(state.kept[i], i == 0 ? state.visible : state.ranks[i - 1], now[i])) continue;
    event.variable(now[i]);
    changed = true;
  }
  if (!changed) __atomic_store_n(&state.environment, mark, __ATOMIC_RELAXED);
}

}  // namespace corral::shim
