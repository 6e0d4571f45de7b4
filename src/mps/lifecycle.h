// SPDX-License-Identifier: Apache-2.0
// Starts and stops one MPS daemon for one GPU, itself confined to that GPU: what it opens for its
// clients, the kernel has allowed it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "isolate/apply.h"
#include "launch/job.h"
#include "mps/daemon.h"

namespace corral::mps {

// Makes the folder's base and takes its lock, which ends with the descriptor. Errors: the base is
// not ours alone to write to, or somebody starts or stops this daemon right now.
Result<Fd> take_lock(const Folder& folder);

// Servers of a daemon that was killed: they live on, with the clients that they may have.
std::vector<pid_t> servers_left(const Folder& folder);
std::string servers_left_text(const std::vector<pid_t>& servers);
constexpr const char* kEndServers = "corral mps stop --force ends it, and its clients with it";

// The daemon of a start that was killed before it could write its record: of this user, with that
// pipe folder. To be asked, and to be ended, where there is no living record.
std::optional<pid_t> unrecorded(const Folder& folder);
void end_unrecorded(const Folder& folder);

// Starts the daemon `program` in the confinement, waits until it answers, and writes its record;
// what a dead one left in the folder is removed first; an error where that one's server lives. The
// caller holds the lock. On an error nothing of it runs, and its log stays; it has `sys` EINTR
// where a signal asked for the end.
Result<Record> start_daemon(const std::string& program, const Folder& folder,
                            const std::string& gpu_uuid, const isolate::Prepared& confinement,
                            const launch::SignalDesk& signals);

// Asks it to end, and kills it and its servers where it does not, or where it is dead already;
// removes its folder. Its clients end with it. The caller holds the lock. Returns what had to be
// done, in words.
Result<std::string> stop_daemon(const std::string& program, const Daemon& daemon);

}  // namespace corral::mps
