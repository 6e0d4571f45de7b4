// SPDX-License-Identifier: Apache-2.0
#include "snapshot/sources.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/file.h"

namespace corral::snapshot {
namespace {

using JobRun = Run;  // testing::Test has a Run of its own

constexpr pid_t kPid = 10;

class Sources : public testing::Test {
 public:
  Sources(const Sources&) = delete;
  Sources& operator=(const Sources&) = delete;

 protected:
  Sources() {
    std::string name = testing::TempDir() + "corral-sources-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    run_.started_realtime_ns = realtime_ns() + 3'600'000'000'000;
  }
  ~Sources() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(write_file(folder_ + "/" + name, text));
    return folder_ + "/" + name;
  }
  void frame(const std::string& file) {
    Context context;
    context.pid = kPid;
    context.stack.python = {{.file = file, .line = 1, .function = "f"}};
    run_.contexts.push_back(context);
  }

  std::string folder_;
  JobRun run_;
};

TEST_F(Sources, a_file_of_a_frame_is_read) {
  const std::string path = write("train.py", "x = 1\n");
  frame(path);
  add_sources(run_);
  EXPECT_EQ(run_.sources, (std::map<std::string, std::string>{{path, "x = 1\n"}}));
}

TEST_F(Sources, a_relative_name_is_one_below_the_working_directory) {
  const std::string path = write("train.py", "x = 1\n");
  Init init;
  init.pid = kPid;
  init.cwd = folder_;
  run_.inits = {init};
  frame("train.py");
  add_sources(run_);
  EXPECT_EQ(run_.sources.count(path), 1U);
  EXPECT_EQ(source_key(run_, kPid, "train.py"), path);
}

TEST_F(Sources, a_file_that_changed_since_the_job_began_is_left_out_and_named) {
  const std::string path = write("train.py", "x = 1\n");
  run_.started_realtime_ns = realtime_ns() - 3'600'000'000'000;
  frame(path);
  add_sources(run_);
  EXPECT_TRUE(run_.sources.empty());
  ASSERT_EQ(run_.remarks.size(), 1U);
  EXPECT_NE(run_.remarks[0].find(path), std::string::npos);
}

TEST_F(Sources, an_older_file_that_was_put_in_its_place_meanwhile_has_changed) {
  const std::string path = write("train.py", "x = 1\n");
  using clock = std::filesystem::file_time_type::clock;
  std::filesystem::last_write_time(write("other.py", "x = 2\n"),
                                   clock::now() - std::chrono::hours(2));
  run_.started_realtime_ns = realtime_ns() - 3'600'000'000'000;
  std::filesystem::rename(folder_ + "/other.py", path);
  frame(path);
  add_sources(run_);
  EXPECT_TRUE(run_.sources.empty());
  EXPECT_EQ(run_.remarks.size(), 1U);
}

TEST_F(Sources, a_path_that_was_led_elsewhere_meanwhile_has_changed) {
  const auto beat = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  for (const std::string release : {"41", "42"}) {
    std::filesystem::create_directory(folder_ + "/" + release);
    write(release + "/train.py", "x = " + release + "\n");
  }
  std::filesystem::create_directory_symlink(folder_ + "/41", folder_ + "/current");
  beat();
  run_.started_realtime_ns = realtime_ns();
  beat();
  frame(folder_ + "/current/train.py");
  add_sources(run_);
  EXPECT_EQ(run_.sources.size(), 1U);

  std::filesystem::remove(folder_ + "/current");
  std::filesystem::create_directory_symlink(folder_ + "/42", folder_ + "/current");
  write("42/made_meanwhile", "");  // says nothing of the script
  run_.sources.clear();
  add_sources(run_);
  EXPECT_TRUE(run_.sources.empty()) << "another link";

  run_.contexts.clear();
  frame(folder_ + "/42/train.py");
  add_sources(run_);
  EXPECT_EQ(run_.sources.size(), 1U);
  run_.sources.clear();
  run_.contexts.clear();
  frame(folder_ + "/43/train.py");
  std::filesystem::rename(folder_ + "/41", folder_ + "/43");
  add_sources(run_);
  EXPECT_TRUE(run_.sources.empty()) << "a folder that was moved there";
}

TEST_F(Sources, lines_end_as_they_do_for_python) {
  const std::string path = write("train.py",
                                 "\xEF\xBB\xBF"
                                 "a\r\nb\rc\n\rd\r");
  frame(path);
  add_sources(run_);
  EXPECT_EQ(run_.sources[path], "a\nb\nc\n\nd\n");
}

TEST_F(Sources, neither_a_pipe_nor_a_link_nor_a_library_nor_a_file_that_is_no_program_is_opened) {
  const std::string pipe = folder_ + "/pipe.py";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  write("train.py", "x = 1\n");
  const std::string link = folder_ + "/link.py";
  ASSERT_EQ(::symlink("train.py", link.c_str()), 0);
  std::filesystem::create_directories(folder_ + "/site-packages");
  for (const std::string& file : std::array{pipe, link, write("site-packages/torch.py", "x\n"),
                                            write("secret.txt", "x\n"), folder_ + "/none.py"})
    frame(file);
  add_sources(run_);
  EXPECT_TRUE(run_.sources.empty());
}

TEST_F(Sources, a_file_too_large_to_be_a_script_is_left_out) {
  frame(write("train.py", std::string((256U << 10) + 1, '#')));
  add_sources(run_);
  EXPECT_TRUE(run_.sources.empty());
}

}  // namespace
}  // namespace corral::snapshot
