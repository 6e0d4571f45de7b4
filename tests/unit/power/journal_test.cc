// SPDX-License-Identifier: Apache-2.0
#include "power/journal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"

namespace corral::power {
namespace {

JournalEntry entry(const std::string& gpu = "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0") {
  return {.boot_id = "6dd9b7c4-0f4f-4a38-9b8a-3a6f1f2f3c11",
          .gpu = gpu,
          .before_mw = 700000,
          .set_mw = 300000,
          .pid = 4711,
          .start_ticks = 123456};
}

class PowerJournal : public testing::Test {
 protected:
  PowerJournal() {
    char name[] = "/tmp/corral-power-XXXXXX";
    base_ = ::mkdtemp(name);
    folder_ = base_ + "/state/corral";
  }
  ~PowerJournal() override { std::filesystem::remove_all(base_); }

  // Runs `child` in a process of its own, where locks are another's; its exit code.
  template <class Child>
  static int in_child(const Child& child) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(child());
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string base_;
  std::string folder_;
};

TEST(journal, reads_what_it_writes) {
  EXPECT_EQ(parse_journal(journal_text(entry())).value(), entry());
}

TEST(journal, a_text_that_was_cut_anywhere_is_refused) {
  const std::string text = journal_text(entry());
  for (std::size_t i = 0; i + 2 < text.size(); ++i)
    EXPECT_FALSE(parse_journal(text.substr(0, i))) << text.substr(0, i);
}

TEST(journal, anything_else_is_refused_with_what_is_wrong) {
  const auto error_of = [](const std::string& from, const std::string& to) {
    std::string text = journal_text(entry());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const auto parsed = parse_journal(text.replace(at, from.size(), to));
    return parsed ? "accepted" : parsed.error().what;
  };
  EXPECT_EQ(error_of("700000", "-700000"), "\"before_mw\" is not a number that can be");
  EXPECT_EQ(error_of("700000", "4294967297"), "\"before_mw\" is not a number that can be");
  EXPECT_EQ(error_of("700000", "7.5"), "\"before_mw\" is not a number that can be");
  EXPECT_EQ(error_of("700000", "0"), "\"before_mw\" is not a number that can be");
  EXPECT_EQ(error_of("300000", "\"300000\""), "\"set_mw\" is not a number that can be");
  EXPECT_EQ(error_of("4711", "4294967290"), "\"pid\" is not a number that can be");
  EXPECT_EQ(error_of("start_ticks", "ticks"), "\"start_ticks\" is missing");
  EXPECT_EQ(error_of("\"schema\": 1", "\"schema\": 2"), "schema 2, not 1");
  EXPECT_EQ(error_of("GPU-2b68", "GPU-../../"), "\"gpu\" is not the UUID of a GPU");
  EXPECT_EQ(error_of("6dd9b7c4-", ""), "\"boot_id\" is not one");
  EXPECT_FALSE(parse_journal(""));
  EXPECT_FALSE(parse_journal("[]"));
  EXPECT_FALSE(parse_journal(std::string("\0\0\0\0", 4)));
  EXPECT_FALSE(parse_journal(std::string(1 << 16, '[')));
}

TEST_F(PowerJournal, is_private_and_whole_when_written_returns) {
  const auto journal = write_journal(folder_, entry());
  ASSERT_TRUE(journal) << journal.error().what;
  struct stat found{};
  ASSERT_EQ(::stat(folder_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  EXPECT_EQ(parse_journal(read_file(journal->path).value()).value(), entry());
  EXPECT_EQ(list_folder(folder_).value(),
            (std::vector<std::string>{"power-GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0.json"}));
}

TEST_F(PowerJournal, is_held_while_its_writer_lives) {
  const auto journal = write_journal(folder_, entry());
  ASSERT_TRUE(journal);
  EXPECT_EQ(in_child([&] {
              const auto found = find_journals(folder_);
              return found && found->held == std::vector{entry()} && found->left.empty() ? 0 : 1;
            }),
            0);
}

TEST_F(PowerJournal, is_left_when_its_writer_is_gone) {
  ASSERT_EQ(in_child([&] { return write_journal(folder_, entry()) ? 0 : 1; }), 0);
  const auto found = find_journals(folder_);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->left.size(), 1U);
  EXPECT_EQ(found->left[0].entry, entry());
  EXPECT_TRUE(found->held.empty());
  EXPECT_TRUE(remove_journal(found->left[0]));
  EXPECT_TRUE(list_folder(folder_)->empty());
}

TEST_F(PowerJournal, of_a_gpu_that_has_one_is_refused_and_nothing_is_lost) {
  const auto first = write_journal(folder_, entry());
  ASSERT_TRUE(first);
  JournalEntry other = entry();
  other.set_mw = 250000;
  EXPECT_EQ(in_child([&] {
              const auto second = write_journal(folder_, other);
              const bool named = !second && second.error().what.find(
                                                "has a cap of 300 W already, "
                                                "of pid 4711") != std::string::npos;
              return named && !check_free(folder_, other.gpu) ? 0 : 1;
            }),
            0);
  EXPECT_EQ(parse_journal(read_file(first->path).value()).value(), entry());
  EXPECT_EQ(list_folder(folder_)->size(), 1U);
  EXPECT_TRUE(check_free(folder_, "GPU-another"));
}

TEST_F(PowerJournal, what_is_no_journal_is_named) {
  ASSERT_TRUE(write_journal(folder_, entry()));
  ASSERT_TRUE(write_file(folder_ + "/power-GPU-a.json", "{", 0600));
  ASSERT_TRUE(write_file(folder_ + "/power-GPU-b.json", journal_text(entry()), 0600));
  ASSERT_TRUE(write_file(folder_ + "/power-GPU-c.json", std::string(1 << 20, ' '), 0600));
  ASSERT_TRUE(write_file(folder_ + "/other", "", 0600));
  std::filesystem::create_symlink("power-GPU-a.json", folder_ + "/power-GPU-d.json");
  ASSERT_EQ(::mkfifo((folder_ + "/power-GPU-e.json").c_str(), 0600), 0);
  const auto found = find_journals(folder_);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->unusable.size(), 5U);
  EXPECT_EQ(found->unusable[0].why, "not a whole JSON object");
  EXPECT_NE(found->unusable[1].why.find("another GPU than its name says"), std::string::npos);
  EXPECT_NE(found->unusable[2].why.find("larger than"), std::string::npos);
  EXPECT_EQ(found->unusable[4].why, "not a file of this user");
}

TEST_F(PowerJournal, is_set_aside_without_replacing_an_earlier_one) {
  std::filesystem::create_directories(folder_);
  for (const char* text : {"first", "second"}) {
    ASSERT_TRUE(write_file(folder_ + "/power-GPU-a.json", text, 0600));
    ASSERT_TRUE(set_aside(folder_ + "/power-GPU-a.json"));
  }
  EXPECT_EQ(read_file(folder_ + "/power-GPU-a.json.aside-1").value(), "first");
  EXPECT_EQ(read_file(folder_ + "/power-GPU-a.json.aside-2").value(), "second");
}

TEST_F(PowerJournal, what_a_killed_writer_left_unfinished_is_removed) {
  const auto unfinished = [&](pid_t pid) {
    return folder_ + "/making-" + std::to_string(pid) + "-power-" + entry().gpu + ".json";
  };
  ASSERT_EQ(in_child([&] { return write_journal(folder_, entry()) ? 0 : 1; }), 0);
  const std::string journal = folder_ + "/power-" + entry().gpu + ".json";
  // Killed between the two names of the file, before the first, and before anything was written.
  ASSERT_EQ(::link(journal.c_str(), unfinished(1).c_str()), 0);
  ASSERT_TRUE(write_file(unfinished(2), "{\"sch", 0600));
  ASSERT_TRUE(write_file(unfinished(3), "", 0600));
  ASSERT_EQ(::mkdir((folder_ + "/making-4-5").c_str(), 0700), 0);
  remove_unfinished(folder_);
  EXPECT_EQ(list_folder(folder_)->size(), 3U);
  EXPECT_EQ(::access(journal.c_str(), F_OK), 0);
  EXPECT_EQ(::access(unfinished(3).c_str(), F_OK), 0) << "it may be a moment before its lock";
}

TEST_F(PowerJournal, what_a_living_writer_has_not_finished_stays) {
  const auto written = write_journal(folder_, entry());
  ASSERT_TRUE(written);
  const std::string unfinished = folder_ + "/making-1-power-" + entry().gpu + ".json";
  ASSERT_EQ(::link(written->path.c_str(), unfinished.c_str()), 0);
  EXPECT_EQ(in_child([&] {
              remove_unfinished(folder_);
              return ::access(unfinished.c_str(), F_OK) == 0 ? 0 : 1;
            }),
            0);
}

TEST_F(PowerJournal, of_a_folder_that_others_can_write_to_is_not_believed) {
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  EXPECT_FALSE(find_journals(folder_));
  EXPECT_FALSE(write_journal(folder_, entry()));
  EXPECT_TRUE(list_folder(folder_)->empty());
}

TEST_F(PowerJournal, of_no_folder_is_none) {
  const auto found = find_journals(folder_);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->held.empty() && found->left.empty() && found->unusable.empty());
}

}  // namespace
}  // namespace corral::power
