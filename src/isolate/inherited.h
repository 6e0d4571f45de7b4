// SPDX-License-Identifier: Apache-2.0
// Descriptors that the job would inherit and that no layer could take back: closed before exec.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

#include "base/error.h"
#include "isolate/plan.h"

namespace corral::isolate {

// Child, before it restricts itself. Goes through /proc/self/fd from 0 and closes, of those that
// would survive exec:
//   always  refused devices, by number or inode; io_uring rings (they open files for us, with the
//           rights of whoever made them); files and folders of cgroup file systems (write rights
//           are those of the opener); BPF objects; pidfds
//   thorough  also folders, O_PATH descriptors, namespaces, files of /proc, mount objects and
//           userfaultfds
// Standard input, output and error get /dev/null in place of what is closed; where that is refused
// itself, the end of a pipe whose other end is closed: reading gives the end of file, writing
// EBADF.
Result<void> close_inherited(std::span<const RefusedNode> refused, bool thorough);

struct WorkingFolder {
  std::string path;
  dev_t device = 0;
  ino_t inode = 0;
};
// The error is of a folder that was removed or that no path leads to.
Result<WorkingFolder> working_folder();
// Goes into it by its path, so that it is seen from here and not through a mount that the caller
// was in. Another folder of that path is an error.
Result<void> enter_again(const WorkingFolder& folder);

}  // namespace corral::isolate
