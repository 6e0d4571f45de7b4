// SPDX-License-Identifier: Apache-2.0
// The private folder of one run: the library folder that the job's loader finds first, and the
// job's traces.
//
//   run-PID-START/lib/libcuda.so.1          -> the installed shim
//   run-PID-START/lib/libcuda.so            -> libcuda.so.1
//   run-PID-START/lib/libcorral-driver.so   -> the real driver, the shim's dependency
//   run-PID-START/trace/                    one file a process of the job
//   run-PID-START/lock                      locked (flock) by its owner; the inode of the pid
//                                           namespace that PID is of, "4026531836\n"
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace corral::launch {

class RunFolder {
 public:
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&& other) noexcept;
  RunFolder(const RunFolder&) = delete;
  // Removes the folder, unless keep() was called.
  ~RunFolder();

  std::string library_folder() const { return path_ + "/lib"; }
  std::string trace_folder() const { return path_ + "/trace"; }
  const std::string& path() const { return path_; }
  // The job, or a process it left behind, still writes there: the next start removes it.
  void keep() { keep_ = true; }

 private:
  friend Result<RunFolder> make_run_folder(const std::vector<std::string>&, std::string_view,
                                           std::string_view);
  RunFolder(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  Fd lock_;
  bool keep_ = false;
};

// Where run folders may live, best first: what is private and in memory, then the temporary folder.
// Those that LD_LIBRARY_PATH cannot hold are left out.
std::vector<std::string> run_folder_bases(uid_t uid, const char* runtime_folder,
                                          const char* temporary_folder);

// Makes the folder in the first base that works; the error names every base and why it did not.
// Removes the folders of runs that are over from that base first; the folder of a run in another
// pid namespace, where what it left behind cannot be seen, only when it is a day old.
Result<RunFolder> make_run_folder(const std::vector<std::string>& bases, std::string_view shim,
                                  std::string_view driver);

}  // namespace corral::launch
