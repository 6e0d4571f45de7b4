// SPDX-License-Identifier: Apache-2.0
// From a request to a confined process and back to nothing left.
#include "isolate/apply.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/fd.h"
#include "in_child.h"
#include "isolate/landlock.h"
#include "isolate/selftest.h"
#include "must_work.h"

namespace corral::isolate {
namespace {

Request refuse_full(Method method, bool tight = false) {
  Request request;
  request.methods = {method};
  request.tight = tight;
  request.refuse_paths = {"/dev/full"};
  return request;
}

// 0: confined, and the rest works.
int confined(const Request& request) {
  const auto plan = plan_for(request);
  if (!plan) return -10;
  auto prepared = prepare(*plan);
  if (!prepared) return -11;
  const auto pid = fork_confined(*prepared);
  if (!pid) return -12;
  if (*pid == 0) {
    if (!enter(*prepared)) ::_exit(1);
    if (!refuses_every_open("/dev/full")) ::_exit(2);
    if (::open("/dev/null", O_RDWR) < 0) ::_exit(3);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(*pid, &status, 0);
  const auto left = release(*prepared);
  if (!left || !left->empty()) return -13;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -14;
}

TEST(apply, every_method_confines_a_child_and_nothing_else) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  EXPECT_EQ(confined(refuse_full(Method::landlock)), 0);
  EXPECT_EQ(confined(refuse_full(Method::automatic)), 0);
  EXPECT_EQ(confined(refuse_full(Method::automatic, true)), 0);
  EXPECT_FALSE(refuses_every_open("/dev/full"));
}

// As a launcher does that execs in its own place.
TEST(apply, a_process_can_confine_itself) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  for (const Method method : {Method::automatic, Method::landlock}) {
    const auto plan = plan_for(refuse_full(method));
    ASSERT_TRUE(plan);
    auto prepared = prepare(*plan);
    ASSERT_TRUE(prepared) << prepared.error().what;
    EXPECT_EQ(in_child([&] {
                const auto entered = enter(*prepared);
                return entered && refuses_every_open("/dev/full") ? 0 : 1;
              }),
              0);
    EXPECT_TRUE(release(*prepared));
  }
}

TEST(apply, an_unenforced_plan_does_nothing) {
  auto plan = plan_for(refuse_full(Method::automatic));
  ASSERT_TRUE(plan);
  plan->layers.clear();
  plan->enforced = "none";
  EXPECT_EQ(in_child([&] {
              auto prepared = prepare(*plan);
              if (!prepared || !enter(*prepared)) return 1;
              return ::open("/dev/full", O_RDWR) < 0 ? 2 : 0;
            }),
            0);
}

TEST(apply, a_confined_process_that_confines_again_finds_it_done) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  EXPECT_EQ(in_child([] {
              const auto outer = plan_for(refuse_full(Method::landlock));
              if (!outer) return 10;
              const auto prepared = prepare(*outer);
              if (!prepared || !enter(*prepared)) return 11;
              const auto inner = plan_for(refuse_full(Method::automatic));
              if (!inner) return 12;
              if (inner->enforced != "existing") return 1;
              const auto nothing = prepare(*inner);
              return nothing && enter(*nothing) ? 0 : 2;
            }),
            0);
}

// A v1 release_agent, for one, is run outside by the kernel: root must not write it.
TEST(apply, root_cannot_write_to_cgroup_files_under_landlock) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  const auto plan = plan_for(refuse_full(Method::landlock));
  ASSERT_TRUE(plan);
  std::vector<std::string> files;
  for (const std::string& mount : plan->read_only) files.push_back(mount + "/cgroup.procs");
  std::erase_if(files, [](const std::string& file) {
    const Fd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    return !fd;
  });
  CORRAL_NEEDS("root", !files.empty(), "no cgroup mount that we may write to");
  EXPECT_EQ(in_child([&] {
              const auto prepared = prepare(*plan);
              if (!prepared || !enter(*prepared)) return 10;
              for (const std::string& file : files) {
                if (::open(file.c_str(), O_WRONLY) >= 0 || errno != EACCES) return 1;
                if (::open(file.c_str(), O_RDONLY) < 0) return 2;
              }
              return 0;
            }),
            0);
}

TEST(apply, domains_nest) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  EXPECT_EQ(in_child([] {
              for (const char* path : {"/dev/full", "/dev/zero"}) {
                Request request = refuse_full(Method::landlock);
                request.refuse_paths = {path};
                const auto plan = plan_for(request);
                if (!plan) return 10;
                const auto prepared = prepare(*plan);
                if (!prepared || !enter(*prepared)) return 11;
              }
              return refuses_every_open("/dev/full") && refuses_every_open("/dev/zero") ? 0 : 1;
            }),
            0);
}

TEST(apply, inside_a_tight_confinement_more_can_be_refused) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  EXPECT_EQ(in_child([] {
              const auto outer = plan_for(refuse_full(Method::automatic, true));
              if (!outer) return 10;
              const auto prepared = prepare(*outer);
              if (!prepared || !enter(*prepared)) return 11;
              Request request;
              request.refuse_paths = {"/dev/zero"};
              const auto inner = plan_for(request);
              if (!inner) return 12;
              // The group above is out of reach in here.
              if (inner->enforced != "landlock+seccomp") return 1;
              const auto more = prepare(*inner);
              if (!more || !enter(*more)) return 2;
              return refuses_every_open("/dev/full") && refuses_every_open("/dev/zero") ? 0 : 3;
            }),
            0);
}

// Waits for a byte; false at the end of the pipe.
bool wait_for(int fd) {
  char byte = 0;
  return ::read(fd, &byte, 1) == 1;
}

TEST(apply, a_killed_corral_leaves_a_confined_job_and_no_lasting_group) {
  const auto plan = plan_for(refuse_full(Method::automatic));
  ASSERT_TRUE(plan) << plan.error().what;
  CORRAL_NEEDS("cgroup2", plan->has(Layer::cgroup2), "no v2 cgroup that we may make groups in");
  int say[2];
  int go[2];
  ASSERT_EQ(::pipe(say), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t corral = ::fork();
  if (corral == 0) {
    auto prepared = prepare(*plan);
    if (!prepared) ::_exit(1);
    const auto job = fork_confined(*prepared);
    if (!job) ::_exit(2);
    if (*job == 0) {
      ::close(go[1]);
      if (!enter(*prepared) || ::write(say[1], "!", 1) != 1 || !wait_for(go[0])) ::_exit(1);
      const char answer = refuses_every_open("/dev/full") ? 'y' : 'n';
      ::_exit(::write(say[1], &answer, 1) == 1 ? 0 : 1);
    }
    const std::string path = prepared->cgroup2.path();
    if (::write(say[1], path.c_str(), path.size() + 1) > 0) ::pause();
    ::_exit(3);
  }
  ::close(say[1]);
  std::string text;  // the job's '!' and the group's path, in either order
  for (char byte = 0; text.find('\0') == std::string::npos || text.find('!') == text.npos;) {
    ASSERT_EQ(::read(say[0], &byte, 1), 1);
    text += byte;
  }
  const std::string path = text.substr(text.find('/'), text.find('\0') - text.find('/'));
  ::kill(corral, SIGKILL);
  ::waitpid(corral, nullptr, 0);
  ASSERT_EQ(::write(go[1], "g", 1), 1);
  char answer = 0;
  ASSERT_EQ(::read(say[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_EQ(::read(say[0], &answer, 1), 0);  // the job has ended
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  // The job is still leaving its group for a moment.
  for (int i = 0; i < 100 && ::access(path.c_str(), F_OK) == 0; ++i) {
    EXPECT_EQ(confined(refuse_full(Method::automatic)), 0);
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(apply, without_a_request_nothing_is_read_or_done) {
  const auto plan = plan_for(Request{});
  ASSERT_TRUE(plan);
  EXPECT_EQ(in_child([&] {
              auto prepared = prepare(*plan);
              if (!prepared || !enter(*prepared)) return 1;
              return ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 &&
                             ::open("/dev/full", O_RDWR) >= 0
                         ? 0
                         : 2;
            }),
            0);
}

TEST(apply, the_working_folder_and_descriptors_of_the_parent_stay_as_they_are) {
  CORRAL_NEEDS("landlock", landlock_abi() > 0, "this kernel has no Landlock");
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY);
  EXPECT_EQ(confined(refuse_full(Method::landlock, true)), 0);
  EXPECT_GE(::fcntl(folder, F_GETFD), 0);
  ::close(folder);
}

}  // namespace
}  // namespace corral::isolate
