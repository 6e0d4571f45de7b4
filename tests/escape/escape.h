// SPDX-License-Identifier: Apache-2.0
// What the ways of escape.c share. A way tries one thing and says what came of it.
#pragma once

#include <stdbool.h>
#include <sys/types.h>

// The exit status of the program.
typedef enum {
  kOpen = 0,     // got the node open, or control of a process that can
  kRefused = 1,  // the kernel said no
  kBroken = 2,   // the attempt itself failed: the test is wrong
  kAbsent = 77,  // does not exist on this kernel, machine or for this user
} Outcome;

typedef struct {
  const char* name;
  Outcome (*try)(const char* path);
} Way;

extern const Way kFileWays[];     // opening by name, link, handle, number
extern const Way kMountWays[];    // mounts, namespaces, roots
extern const Way kCgroupWays[];   // leaving or loosening the cgroup
extern const Way kProcessWays[];  // other processes and inherited things

// ESCAPE_NODE: "MAJOR:MINOR" of the node that is to be reached.
bool is_target(int fd);

// The outcome of an open: kOpen if `fd` is the target and is a real descriptor; else by errno:
// kRefused for EACCES, EPERM and what else a refusal may look like, kAbsent for ENOSYS where
// `may_be_absent`.
Outcome judge(int fd);

// Opens `path` for reading, writing and in mode 3; kOpen if any works.
Outcome try_every_mode(const char* path);

// A path in the run's own /tmp.
const char* in_tmp(const char* name);

// A number from the environment; -1 when it is not set.
long number_from(const char* variable);
