// SPDX-License-Identifier: Apache-2.0
// What a cap that will be put back leaves on the disk before it changes a card: enough for the next
// start to put the limit back when its holder was killed.
//
//   FOLDER/power-GPU-….json   {"schema": 1, "boot_id": "…", "gpu": "GPU-…", "before_mw": 700000,
//                              "set_mw": 200000, "pid": 4711, "start_ticks": 123456}
//
// One file a GPU. It appears whole or not at all, and is on the disk before write_journal returns.
// Its holder has a lock on it, which the kernel drops when the holder ends, however it ends: that,
// and not the pid, tells whether a journal is in use, also across pid namespaces.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace corral::power {

struct JournalEntry {
  std::string boot_id;            // of /proc/sys/kernel/random/boot_id
  std::string gpu;                // UUID
  unsigned before_mw = 0;         // the requested limit before, never 0
  unsigned set_mw = 0;            // the limit that the holder set, or was about to
  pid_t pid = 0;                  // the holder, in its own pid namespace
  std::uint64_t start_ticks = 0;  // when it started: clock ticks after boot

  bool operator==(const JournalEntry&) const = default;
};

std::string journal_text(const JournalEntry& entry);
// Errors say what is missing or wrong; a text that was cut anywhere is one.
Result<JournalEntry> parse_journal(std::string_view text);

// A journal file that this process holds the lock of. Destroying it drops the lock and leaves the
// file: the next start obeys it.
struct Journal {
  std::string path;
  Fd lock;
  JournalEntry entry;
};

// Makes the folder where it is missing. A journal that is there already, whoever left it, is an
// error that names its holder.
Result<Journal> write_journal(const std::string& folder, const JournalEntry& entry);

// The error names who has a journal of this GPU there: a living holder, or one that is gone and
// whose limit could not be put back.
Result<void> check_free(const std::string& folder, const std::string& gpu);

Result<void> remove_journal(const Journal& journal);

// Renames it so that it is not found again; gives the new path.
Result<std::string> set_aside(const std::string& path);

// Removes what a process that was killed had not given its name yet, or had just given it. Before
// anything else: a lock of this process on such a file would be lost.
void remove_unfinished(const std::string& folder);

struct FoundJournals {
  std::vector<JournalEntry> held;  // in use by a living process
  std::vector<Journal> left;       // their holders are gone; locked by us now
  // Neither: what cannot be read, is not ours, or is no journal. Not touched yet.
  struct Unusable {
    std::string path;
    std::string why;
    bool in_use = false;  // a living process holds it: of a later version, perhaps
    Fd lock;
  };
  std::vector<Unusable> unusable;
};

// The journals in a folder; none in one that does not exist. The error is of a folder that others
// can write to: what it holds could be anybody's.
Result<FoundJournals> find_journals(const std::string& folder);

}  // namespace corral::power
