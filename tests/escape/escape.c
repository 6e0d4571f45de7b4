// SPDX-License-Identifier: Apache-2.0
// Tries to get at a refused device node: `escape WAY PATH`. Run inside a confinement by
// escape_test, which also makes what a way needs outside. `escape list` names the ways.
#include "escape.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { kPatienceSeconds = 20 };

bool is_target(int fd) {
  unsigned want_major = 0;
  unsigned want_minor = 0;
  const char* node = getenv("ESCAPE_NODE");
  if (node == NULL || sscanf(node, "%u:%u", &want_major, &want_minor) != 2) exit(kBroken);
  struct stat status;
  if (fstat(fd, &status) != 0) return false;
  return S_ISCHR(status.st_mode) && major(status.st_rdev) == want_major &&
         minor(status.st_rdev) == want_minor && (fcntl(fd, F_GETFL) & O_PATH) == 0;
}

Outcome judge(int fd) {
  const int error = errno;
  if (fd < 0) return error == ENOSYS ? kAbsent : kRefused;
  const bool target = is_target(fd);
  close(fd);
  return target ? kOpen : kRefused;
}

Outcome try_every_mode(const char* path) {
  for (int mode = 0; mode <= O_ACCMODE; ++mode)
    if (judge(open(path, mode | O_NONBLOCK | O_CLOEXEC)) == kOpen) return kOpen;
  return kRefused;
}

const char* in_tmp(const char* name) {
  static char path[256];
  snprintf(path, sizeof path, "/tmp/escape-%s", name);
  return path;
}

long number_from(const char* variable) {
  const char* text = getenv(variable);
  return text == NULL ? -1 : strtol(text, NULL, 0);
}

static const Way* const kTables[] = {kFileWays, kMountWays, kCgroupWays, kProcessWays};

static const Way* find(const char* name) {
  for (size_t t = 0; t < sizeof kTables / sizeof *kTables; ++t)
    for (const Way* way = kTables[t]; way->name != NULL; ++way)
      if (strcmp(way->name, name) == 0) return way;
  return NULL;
}

// The process outside that some ways go for: holds the node open, lets itself be traced where a
// security module asks for that, and reports "PID ADDRESS FD" of itself.
static int be_helper(const char* path) {
  static char buffer[16];
  const int fd = open(path, O_RDWR);
  if (fd < 0) return kBroken;
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
  dprintf(STDOUT_FILENO, "%d %lu %d\n", getpid(), (unsigned long)(size_t)buffer, fd);
  close(STDOUT_FILENO);
  for (;;) pause();
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "list") == 0) {
    for (size_t t = 0; t < sizeof kTables / sizeof *kTables; ++t)
      for (const Way* way = kTables[t]; way->name != NULL; ++way) puts(way->name);
    return 0;
  }
  if (argc != 3) {
    fputs("usage: escape WAY PATH | escape helper PATH | escape list\n", stderr);
    return kBroken;
  }
  if (strcmp(argv[1], "helper") == 0) return be_helper(argv[2]);
  const Way* way = find(argv[1]);
  if (way == NULL) {
    fprintf(stderr, "escape: no way \"%s\"\n", argv[1]);
    return kBroken;
  }
  alarm(kPatienceSeconds);
  return way->try(argv[2]);
}
