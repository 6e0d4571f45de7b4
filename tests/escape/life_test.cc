// SPDX-License-Identifier: Apache-2.0
// Ordinary work inside a confinement: what a job does all day must go on, and what is lost is
// known.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "features.h"
#include "table.h"

namespace corral::escape {
namespace {

struct Work {
  const char* name;
  // Programs it needs; without them it is not tried.
  const char* needs;
  const char* script;  // of /bin/sh, with set -e, in a fresh /tmp
};

constexpr Work kWork[] = {
    {"move_between_folders", "mv",
     "mkdir a b; echo x > a/f; mv a/f b/f; test -f b/f; mv b /var/tmp/escape-life-$$; "
     "rm -r /var/tmp/escape-life-$$"},
    {"rename_from_python", "python3",
     "mkdir a b; echo x > a/f; python3 -c 'import os; os.rename(\"a/f\", \"b/f\")'"},
    {"hard_links", "ln", "mkdir a b; echo x > a/f; ln a/f b/f; test -f b/f"},
    {"tar", "tar",
     "mkdir a; echo x > a/f; mkfifo a/p; ln -s f a/l; tar cf a.tar a; mkdir b; tar xf a.tar -C b; "
     "test -p b/a/p; test \"$(cat b/a/l)\" = x"},
    {"git", "git",
     "git init -q r; cd r; git config user.email a@b; git config user.name a; echo x > f; "
     "git add f; git commit -qm one; git clone -q . ../s; test -f ../s/f"},
    {"compiler", "gcc",
     "printf 'int main(void) { return 0; }' > m.c; gcc -pipe -o m m.c; ./m; gcc -o m m.c; ./m"},
    {"subprocess_pool", "xargs", "seq 64 | xargs -P 8 -n 1 sh -c 'test $0 -gt 0'"},
    {"python_pool", "python3",
     "cat > p.py <<'END'\n"
     "import multiprocessing as m\n"
     "def f(x): return x * x\n"
     "if __name__ == '__main__':\n"
     "    for way in ('fork', 'spawn', 'forkserver'):\n"
     "        with m.get_context(way).Pool(2) as p: assert p.map(f, [1, 2, 3]) == [1, 4, 9]\n"
     "END\n"
     "python3 p.py"},
    {"shared_memory", "python3",
     "python3 -c 'from multiprocessing.shared_memory import SharedMemory as S; "
     "s = S(create=True, size=1 << 20); s.buf[0] = 1; t = S(s.name); assert t.buf[0] == 1; "
     "t.close(); s.close(); s.unlink()'; echo x > /dev/shm/escape-life-$$; "
     "rm /dev/shm/escape-life-$$"},
    {"pseudo_terminal", "python3",
     "python3 -c 'import pty, os; assert pty.spawn([\"sh\", \"-c\", \"test -t 0\"]) == 0' "
     "</dev/null"},
    {"sockets", "python3",
     "python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind(\"/tmp/s\"); "
     "s.listen(); "
     "c = socket.socket(socket.AF_UNIX); c.connect(\"/tmp/s\"); "
     "t = socket.create_server((\"127.0.0.1\", 0)); socket.create_connection(t.getsockname())'"},
    {"passing_descriptors", "python3",
     "python3 -c 'import socket, os; a, b = socket.socketpair(); "
     "socket.send_fds(a, [b\"x\"], [os.open(\"/dev/null\", 2)]); "
     "assert socket.recv_fds(b, 1, 1)[1]'"},
    {"signals_inside", "kill", "sleep 100 & kill $!; wait $! || test $? = 143"},
    {"tracing_inside", "strace", "strace -f -o t sh -c 'true | true'; test -s t"},
    {"other_devices", "dd",
     "dd if=/dev/zero of=/dev/null bs=1k count=1 2>/dev/null; head -c 8 /dev/urandom > r; test -s "
     "r"},
    {"proc_and_sys", "cat",
     "cat /proc/self/status /proc/meminfo /sys/kernel/mm/transparent_hugepage/enabled > f; "
     "echo life > /proc/self/comm"},
    {"descriptor_paths", "cat",
     "echo x > f; exec 3< f; test \"$(cat /proc/self/fd/3)\" = x; "
     "echo y | cat /dev/stdin > /dev/null"},
    {"temporary_files", "mktemp", "f=$(mktemp); echo x > $f; rm $f; d=$(mktemp -d); rmdir $d"},
    {"a_32_bit_program", "", "$ESCAPE_FOLDER/escape32 /dev/zero read"},
};

// What a method takes away, by the same kind of script: known, named in docs/isolation.md.
struct Loss {
  const char* name;
  const char* script;
  bool (*lost)(const Column&);
};

bool has_file_rules(const Column& column) { return column.landlock || column.tight; }

constexpr Loss kLosses[] = {
    {"mounting in a user namespace", "unshare -Urm mount -t tmpfs none /mnt", has_file_rules},
    {"files directly in the root folder, as root",
     "test $(id -u) = 0; echo x > /escape-life-$LIFE; rm /escape-life-$LIFE",
     [](const Column& column) { return has_file_rules(column) || column.user; }},
    {"tracing what is outside",
     "strace -p $PPID -o t & p=$!; sleep 0.3; kill $p && wait $p || "
     "test -s t",
     [](const Column& column) { return column.confines() || column.user; }},
};

bool has_programs(std::string_view names) {
  if (names.empty()) return true;
  return std::system(("command -v " + std::string(names) + " >/dev/null 2>&1").c_str()) == 0;
}

class Life : public testing::TestWithParam<std::size_t> {};

Ended sh(const Ground& ground, const Column& column, const char* script) {
  return run(ground, column, Setup::none, {"/bin/sh", "-c", std::string("set -e; ") + script});
}

TEST_P(Life, goes_on) {
  const Column& column = columns()[GetParam()];
  CORRAL_NEEDS_COLUMN(column);
  const Ground ground;
  ASSERT_EQ(ground.trouble(), "");
  for (const Work& work : kWork) {
    if (!has_programs(work.needs)) continue;
    const Ended ended = sh(ground, column, work.script);
    EXPECT_EQ(ended.status.value_or(-1), 0) << work.name << ": " << ended.message;
    EXPECT_TRUE(ended.left.empty()) << work.name;
    EXPECT_EQ(ended.lasting_group, "") << work.name;
  }
}

TEST_P(Life, loses_what_is_written_down_and_no_more) {
  const Column& column = columns()[GetParam()];
  CORRAL_NEEDS_COLUMN(column);
  if (!has_programs("strace") || !has_programs("unshare")) GTEST_SKIP() << "no strace or unshare";
  const Ground ground;
  ASSERT_EQ(ground.trouble(), "");
  const std::string name = std::to_string(::getpid());
  ::setenv("LIFE", name.c_str(), 1);
  for (const Loss& loss : kLosses)
    EXPECT_EQ(sh(ground, column, ("exec 2>/dev/null; " + std::string(loss.script)).c_str())
                      .status.value_or(-1) != 0,
              loss.lost(column))
        << loss.name;
  // Landlock lets root make a file there, and neither fill nor remove it.
  ::unlink(("/escape-life-" + name).c_str());
}

INSTANTIATE_TEST_SUITE_P(all, Life, testing::Range(std::size_t{0}, columns().size()),
                         [](const auto& parameter) {
                           return test_name(columns()[parameter.param]);
                         });

}  // namespace
}  // namespace corral::escape
