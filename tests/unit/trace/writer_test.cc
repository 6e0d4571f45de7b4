// SPDX-License-Identifier: Apache-2.0
#include "trace/writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "base/file.h"
#include "trace/reader.h"

namespace corral::trace {
namespace {

class WriterFolder : public testing::Test {
 protected:
  WriterFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "corral-writer-" + test->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    writer_.fd = -1;
  }
  ~WriterFolder() override {
    close_descriptor(writer_);
    if (writer_.counters != nullptr) munmap(writer_.counters, sizeof *writer_.counters);
    std::filesystem::remove_all(folder_);
  }

  bool open() { return open_writer(writer_, folder_.c_str(), scratch_); }

  bool write_exit() {
    alignas(8) char buffer[512];
    RecordBuilder record(buffer, sizeof buffer, wire::kExit, 1, 2);
    record.payload(wire::ExitPayload{.reserved = 0});
    record.finish();
    return append(writer_, record);
  }

  ProcessTrace read() {
    auto trace = read_trace(writer_.path);
    EXPECT_TRUE(trace) << (trace ? "" : trace.error().what);
    return trace ? std::move(*trace) : ProcessTrace{};
  }

  std::string folder_;
  Writer writer_{};
  alignas(8) char scratch_[wire::kMaxHeaderBytes];
};

TEST_F(WriterFolder, header_names_this_process) {
  ASSERT_TRUE(open());
  const ProcessTrace trace = read();
  EXPECT_EQ(trace.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_EQ(trace.parent_pid, static_cast<std::uint32_t>(getppid()));
  EXPECT_EQ(trace.exe, std::filesystem::read_symlink("/proc/self/exe"));
  EXPECT_EQ(trace.cwd, std::filesystem::current_path());
  EXPECT_FALSE(trace.argv.empty());
  EXPECT_EQ(trace.ticks_per_second, sysconf(_SC_CLK_TCK));
  ASSERT_TRUE(trace.counters);
  EXPECT_EQ(trace.counters->pid, trace.pid);
  EXPECT_EQ(trace.counters->start_time_ticks, trace.start_time_ticks);
  EXPECT_GE(writer_.fd, 512);
}

TEST_F(WriterFolder, takes_the_next_name_when_one_is_taken) {
  ASSERT_TRUE(open());
  const std::string first = writer_.path;
  close_descriptor(writer_);
  munmap(writer_.counters, sizeof *writer_.counters);
  ASSERT_TRUE(open());
  EXPECT_EQ(std::string(writer_.path), first.substr(0, first.size() - 6) + ".2.trace");
}

TEST_F(WriterFolder, refuses_folders_that_cannot_be) {
  EXPECT_FALSE(open_writer(writer_, "relative", scratch_));
  EXPECT_FALSE(open_writer(writer_, "", scratch_));
  EXPECT_FALSE(open_writer(writer_, (folder_ + "/nowhere").c_str(), scratch_));
  EXPECT_FALSE(open_writer(writer_, ("/" + std::string(5000, 'x')).c_str(), scratch_));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(WriterFolder, does_not_follow_a_link_that_lies_in_wait) {
  ASSERT_TRUE(open());
  const std::string first = writer_.path;
  close_descriptor(writer_);
  munmap(writer_.counters, sizeof *writer_.counters);
  writer_.counters = nullptr;
  std::filesystem::remove(first);
  std::filesystem::create_symlink(folder_ + "/victim", first);
  ASSERT_TRUE(open());
  EXPECT_NE(std::string(writer_.path), first);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/victim"));
}

TEST_F(WriterFolder, opens_again_when_the_descriptor_became_another_file) {
  ASSERT_TRUE(open());
  const std::string victim = folder_ + "/victim";
  const int other = ::open(victim.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(dup2(other, writer_.fd), writer_.fd);
  EXPECT_TRUE(write_exit());
  EXPECT_EQ(std::filesystem::file_size(victim), 0U);
  EXPECT_TRUE(read().exit_monotonic_ns);
  ::close(other);
}

TEST_F(WriterFolder, loses_records_when_the_file_is_gone) {
  ASSERT_TRUE(open());
  close_descriptor(writer_);
  std::filesystem::remove(writer_.path);
  EXPECT_FALSE(write_exit());
}

TEST_F(WriterFolder, threads_do_not_mix_their_records) {
  ASSERT_TRUE(open());
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      std::vector<std::uint64_t> buffer(2048);
      for (int round = 0; round < 50; ++round) {
        RecordBuilder record(reinterpret_cast<char*>(buffer.data()), 16384, wire::kInit, i, round);
        record.payload(wire::InitPayload{.result = static_cast<int>(i), .flags = 0});
        const std::string text(std::size_t{1000} * (i + 1), static_cast<char>('a' + i));
        record.text(wire::kThreadName, text.data(), text.size());
        record.finish();
        EXPECT_TRUE(append(writer_, record));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ProcessTrace trace = read();
  EXPECT_FALSE(trace.damage);
  ASSERT_EQ(trace.inits.size(), 400U);
  for (const Event& event : trace.inits)
    EXPECT_EQ(event.thread_name,
              std::string(std::size_t{1000} * (event.tid + 1), static_cast<char>('a' + event.tid)));
}

TEST(record_builder, cuts_text_that_does_not_fit_and_leaves_out_other_fields) {
  alignas(8) char buffer[512];
  RecordBuilder record(buffer, sizeof buffer, wire::kInit, 1, 2);
  record.payload(wire::InitPayload{});
  const std::string text(2000, 'x');
  record.text(wire::kThreadName, text.data(), text.size());
  const wire::NativeFrameData frames[4]{};
  record.native_frames(frames, 4);
  record.python_frame(wire::kPythonFrame, 1, "f", 1, "g", 1);
  record.python_omitted(wire::kPythonOmitted, 1);
  record.text(wire::kFunction, "f", 1);
  record.finish();
  EXPECT_LE(record.size(), sizeof buffer);
  EXPECT_EQ(record.size() % wire::kAlignment, 0U);
  wire::FieldHeader field;
  std::memcpy(&field, buffer + sizeof(wire::RecordHeader) + sizeof(wire::InitPayload),
              sizeof field);
  EXPECT_EQ(field.flags, wire::kFieldCut);
  EXPECT_LT(field.bytes, sizeof buffer);
}

}  // namespace
}  // namespace corral::trace
