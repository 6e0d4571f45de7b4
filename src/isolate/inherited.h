// SPDX-License-Identifier: Apache-2.0
// Descriptors that the job would inherit and that no layer could take back: closed before exec.
#pragma once

#include <span>

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

// Goes into the working folder again by its own path, so that it is seen from here and not through
// a mount that the caller was in.
Result<void> enter_working_folder_afresh();

}  // namespace corral::isolate
