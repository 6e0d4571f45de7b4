// SPDX-License-Identifier: Apache-2.0
// Landlock: an unprivileged allow-list of files, turned round into "everything but these nodes".
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace corral::isolate {

// The kernel's Landlock ABI; 0 when it has none or it is switched off at boot.
unsigned landlock_abi();

// One rule: a file or a whole hierarchy that stays usable.
struct Grant {
  std::string path;
  bool folder = false;
  bool read_only = false;

  bool operator==(const Grant&) const = default;
};

struct LandlockRules {
  // Every name of every refused node, absolute and without symbolic links; nodes that do not exist
  // yet are fine.
  std::vector<std::string> refused;
  std::vector<std::string> read_only;  // hierarchies that may be read but not written
  std::string top = "/";               // tests use a smaller tree
};

// The grants that leave everything open but the refused nodes. Landlock has no "refuse" rule, and a
// rule on a folder holds for all below it, so no ancestor of a refused node may get one: each is
// listed and its other children are granted one by one. Inodes are compared, not only names, since
// rights are those of the inode whatever mount it is reached through; so are device numbers.
Result<std::vector<Grant>> landlock_grants(const LandlockRules& rules);

// The rule set in memory. `abi` as landlock_abi() gave it, at least 1.
// Handled: reading, writing, ioctl on devices (ABI 5), moving across folders (ABI 2), and making
// device nodes, which is granted nowhere. `scope`: signals and ptrace do not leave the domain
// (ABI 6; ptrace always).
Result<Fd> build_landlock(const LandlockRules& rules, unsigned abi);

// A domain that refuses no file at all: it only keeps ptrace, pidfd_getfd and signals inside.
// Needs ABI 6. Mounting and everything else stays as it was.
Result<Fd> build_landlock_scope();

// Child: needs no_new_privs or CAP_SYS_ADMIN.
Result<void> enter_landlock(int ruleset);

}  // namespace corral::isolate
