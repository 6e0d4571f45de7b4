// SPDX-License-Identifier: Apache-2.0
// Runs one program in a confinement, with whatever an attempt needs made outside before. All of it
// happens in a process and a mount namespace of the run's own, so nothing is left when it ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace corral::escape {

// A column of the table: the method, and who confines whom.
struct Column {
  std::string name;    // "Landlock"
  std::string person;  // "root", "user"
  bool tight = false;
  bool landlock = false;  // --enforce landlock
  bool mount = false;     // --enforce mount, with the one above --enforce mount,landlock
  bool cgroup2 = false;   // hide cgroup v1 from the plan
  bool cgroup1 = false;   // hide cgroup v2 from the plan
  bool user = false;      // the program runs as an ordinary user
  // The user confines himself; else root does, and the user is stepped down to afterwards.
  bool by_user = false;

  bool confines() const { return tight || landlock || mount || cgroup2 || cgroup1; }
};

// What is made outside, before the confinement.
enum class Setup {
  none,
  helper,         // an unconfined process of the same user that holds the node
  inherit_fd,     // the node open at ESCAPE_FD
  inherit_stdin,  // the node as standard input
  inherit_opath,
  inherit_folder,  // /dev
  inherit_cwd,     // /dev as working folder
  inherit_ring,    // an io_uring
  inherit_pidfd,   // of the helper
  inherit_procs,   // cgroup.procs of the group above
  inherit_mount_namespace,
  socket,        // a descriptor waiting in an inherited socket
  alias_bind,    // /dev mounted a second time
  alias_node,    // a second node of the number
  alias_in_tmp,  // the same, below /tmp
  made_again     // the node is removed and made again while the program runs
};

// The machine's part: a throw-away node and a folder of programs. Made once; the destructor takes
// both away, and the constructor takes away what a killed run left.
class Ground {
 public:
  Ground();
  ~Ground();
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  // Makes the node again when an attempt took it away. False: that failed.
  bool restore() const;

  const std::string& node() const { return node_; }
  const std::string& folder() const { return folder_; }
  // Why the node could not be made; empty when all is well.
  const std::string& trouble() const { return trouble_; }

 private:
  std::string node_;
  std::string folder_;
  std::string trouble_;
};

constexpr unsigned kNodeMajor = 1;
constexpr unsigned kNodeMinor = 7;  // like /dev/full: harmless, and programs hardly use it
constexpr uid_t kUser = 65534;

struct Ended {
  // Exit status of the program; nullopt: it was never started, and `message` says why.
  std::optional<int> status;
  std::string message;
  std::vector<pid_t> left;    // processes that were still in the cgroup
  std::string lasting_group;  // the run's cgroup, when it is still there
};

// Runs `argv` (argv[0] a path) in the column. `refuse` false confines nothing.
Ended run(const Ground& ground, const Column& column, Setup setup,
          const std::vector<std::string>& argv);

// The name of the node as the set-up makes it reachable: the node's own, or the alias.
std::string path_for(const Ground& ground, Setup setup);

}  // namespace corral::escape
