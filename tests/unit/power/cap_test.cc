// SPDX-License-Identifier: Apache-2.0
// Planning, setting and putting back against a scripted NVML; no card is ever touched.
#include "power/cap.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "../gpu/fake_nvml.h"
#include "base/file.h"
#include "power/recovery.h"

namespace corral::power {
namespace {

constexpr const char* kSetter = "nvmlDeviceSetPowerManagementLimit";
constexpr const char* kLimit = "nvmlDeviceGetPowerManagementLimit";

class PowerCap : public testing::Test {
 protected:
  PowerCap() {
    char name[] = "/tmp/corral-power-XXXXXX";
    folder_ = ::mkdtemp(name);
    fake_.gpus = tests::two_gpus();
    nvml_ = fake_.open();
    for (unsigned i = 0; i < 2; ++i) {
      gpu::Gpu gpu;
      gpu.index = i;
      gpu.uuid = fake_.gpus[i].uuid;
      gpu.pci = nvml_->pci(nvml_->device(i).value()).value();
      inventory_.gpus.push_back(gpu);
      cards_.push_back(find_card(*nvml_, gpu).value());
    }
  }
  ~PowerCap() override { std::filesystem::remove_all(folder_); }

  std::vector<Change> plan(unsigned milliwatts = 300000) {
    return plan_cap(*nvml_, cards_, milliwatts).value();
  }
  Recovery recovered(bool set = true) {
    return recover(*nvml_, inventory_, folder_, this_process()->boot_id, set);
  }
  // As a process that is killed leaves it.
  void leave_journal(const JournalEntry& entry) {
    ASSERT_TRUE(write_file(folder_ + "/power-" + entry.gpu + ".json", journal_text(entry), 0600));
  }
  JournalEntry entry(unsigned before_mw, unsigned set_mw) {
    return {.boot_id = this_process()->boot_id,
            .gpu = cards_[1].uuid,
            .before_mw = before_mw,
            .set_mw = set_mw,
            .pid = 4711,
            .start_ticks = 1};
  }
  std::size_t files() { return list_folder(folder_)->size(); }

  std::string folder_;
  tests::FakeNvml fake_;
  std::shared_ptr<const gpu::Nvml> nvml_;
  gpu::Inventory inventory_;
  std::vector<Card> cards_;
};

TEST_F(PowerCap, limits_stay_apart_and_what_is_not_known_is_nothing) {
  fake_.missing.insert("nvmlDeviceGetPowerManagementDefaultLimit");
  nvml_ = fake_.open();
  fake_.failures["nvmlDeviceGetPowerManagementLimitConstraints#0"] = 3;
  const Limits limits = read_limits(*nvml_, cards_[0].device);
  EXPECT_EQ(limits.requested_mw, 700000U);
  EXPECT_EQ(limits.enforced_mw, 650000U);
  EXPECT_EQ(limits.default_mw, std::nullopt);
  EXPECT_EQ(limits.min_mw, std::nullopt);
  EXPECT_EQ(limits.max_mw, std::nullopt);
  EXPECT_EQ(limits.unknown.size(), 2U);
}

TEST_F(PowerCap, plan_names_every_card_that_does_not_take_it) {
  fake_.gpus[1].min_limit_mw = 100000;
  const auto planned = plan_cap(*nvml_, cards_, 150000);
  ASSERT_FALSE(planned);
  EXPECT_NE(planned.error().what.find("GPU 0"), std::string::npos);
  EXPECT_NE(planned.error().what.find("150 W is outside of what it takes, 200 W to 700 W"),
            std::string::npos);
  EXPECT_EQ(planned.error().what.find("GPU 1"), std::string::npos);
  for (const unsigned edge : {200000U, 700000U}) EXPECT_TRUE(plan_cap(*nvml_, cards_, edge));
  for (const unsigned outside : {199999U, 700001U}) EXPECT_FALSE(plan_cap(*nvml_, cards_, outside));
  EXPECT_EQ(fake_.calls[kSetter], 0);
}

TEST_F(PowerCap, plan_wants_to_know_the_limit_before) {
  fake_.failures[std::string(kLimit) + "#1"] = 3;
  EXPECT_FALSE(plan_cap(*nvml_, cards_, 300000));
  fake_.failures.clear();
  fake_.gpus[1].limit_mw = 0;
  EXPECT_FALSE(plan_cap(*nvml_, cards_, 300000));
}

TEST_F(PowerCap, another_card_at_that_address_is_not_touched) {
  gpu::Gpu gpu = inventory_.gpus[0];
  gpu.uuid = "GPU-other";
  EXPECT_FALSE(find_card(*nvml_, gpu));
}

TEST(power_rights, are_those_of_the_hosts_root) {
  EXPECT_TRUE(check_rights(0, "         0          0 4294967295\n"));
  EXPECT_TRUE(check_rights(0, ""));
  EXPECT_FALSE(check_rights(1000, "         0          0 4294967295\n"));
  EXPECT_FALSE(check_rights(0, "         0       1000          1\n"));
  EXPECT_FALSE(check_rights(0, "         0     100000      65536\n"));
}

TEST_F(PowerCap, journal_is_there_before_the_setter_is_called) {
  fake_.failures[kSetter] = 4;
  ASSERT_TRUE(write_file(folder_ + "/power-" + cards_[1].uuid + ".json", "", 0600));
  EXPECT_FALSE(hold(*nvml_, plan(), folder_, *this_process()));
  EXPECT_EQ(fake_.calls[kSetter], 0) << "one journal could not be written: nothing is set";
  EXPECT_EQ(files(), 1U) << "and the other one is gone again";
}

TEST_F(PowerCap, held_and_put_back) {
  const auto held = hold(*nvml_, plan(), folder_, *this_process());
  ASSERT_TRUE(held);
  EXPECT_EQ(files(), 2U);
  EXPECT_EQ(fake_.gpus[0].limit_mw, 300000U);
  EXPECT_EQ(fake_.gpus[1].limit_mw, 300000U);
  for (const HeldCap& cap : *held)
    EXPECT_EQ(put_back(*nvml_, cap.change.card, cap.journal).outcome, PutBack::Outcome::restored);
  EXPECT_EQ(fake_.gpus[1].limit_mw, 700000U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(PowerCap, a_cap_of_less_than_a_watt_is_put_back_too) {
  const auto held = hold(*nvml_, plan(699500), folder_, this_process().value());
  ASSERT_TRUE(held);
  EXPECT_EQ(fake_.gpus[1].limit_mw, 699500U);
  const PutBack back = put_back(*nvml_, cards_[1], (*held)[1].journal);
  EXPECT_EQ(back.outcome, PutBack::Outcome::restored) << back.text;
  EXPECT_EQ(fake_.gpus[1].limit_mw, 700000U);
}

TEST_F(PowerCap, a_cap_of_less_than_a_watt_that_another_card_refuses_is_undone) {
  fake_.failures[std::string(kSetter) + "#1"] = 4;
  EXPECT_FALSE(hold(*nvml_, plan(699500), folder_, this_process().value()));
  EXPECT_EQ(fake_.gpus[0].limit_mw, 700000U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(PowerCap, a_card_that_refuses_puts_the_others_back) {
  for (const int code : {2, 3, 4, 999}) {
    fake_.failures = {{std::string(kSetter) + "#1", code}};
    EXPECT_FALSE(hold(*nvml_, plan(), folder_, *this_process()));
    EXPECT_FALSE(set_all(*nvml_, plan()));
    EXPECT_EQ(fake_.gpus[0].limit_mw, 700000U);
    EXPECT_EQ(files(), 0U);
  }
}

TEST_F(PowerCap, a_setter_that_lies_is_found_out) {
  fake_.gpus[1].setter_lies = true;
  const auto held = hold(*nvml_, plan(), folder_, *this_process());
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().what, "GPU 1: the driver took 300 W and still says 700 W");
  EXPECT_EQ(fake_.gpus[0].limit_mw, 700000U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(PowerCap, a_card_that_is_lost_in_between_keeps_its_journal) {
  const auto changes = plan();
  fake_.failures = {{std::string(kSetter) + "#1", 15}, {std::string(kLimit) + "#1", 15}};
  const auto held = hold(*nvml_, changes, folder_, *this_process());
  ASSERT_FALSE(held);
  EXPECT_EQ(fake_.gpus[0].limit_mw, 700000U);
  EXPECT_EQ(files(), 1U) << "whether it was set is not known: the next start looks again";
  fake_.failures.clear();
  EXPECT_EQ(recovered().said.size(), 1U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(PowerCap, a_limit_that_somebody_else_set_is_left_alone) {
  auto held = hold(*nvml_, plan(), folder_, *this_process());
  ASSERT_TRUE(held);
  fake_.gpus[0].limit_mw = 400000;
  fake_.gpus[1].limit_mw = 300999;  // rounded by the driver: still ours
  EXPECT_EQ(put_back(*nvml_, (*held)[0].change.card, (*held)[0].journal).outcome,
            PutBack::Outcome::changed);
  EXPECT_EQ(put_back(*nvml_, (*held)[1].change.card, (*held)[1].journal).outcome,
            PutBack::Outcome::restored);
  EXPECT_EQ(fake_.gpus[0].limit_mw, 400000U);
  EXPECT_EQ(files(), 0U);
}

TEST_F(PowerCap, what_cannot_be_put_back_keeps_its_journal) {
  const auto held = hold(*nvml_, plan(), folder_, *this_process());
  ASSERT_TRUE(held);
  fake_.failures[kSetter] = 4;
  const PutBack done = put_back(*nvml_, (*held)[1].change.card, (*held)[1].journal);
  EXPECT_EQ(done.outcome, PutBack::Outcome::failed);
  EXPECT_NE(done.text.find((*held)[1].journal.path), std::string::npos);
  EXPECT_EQ(files(), 2U);
}

TEST_F(PowerCap, left_by_a_killed_holder_is_put_back_once) {
  leave_journal(entry(600000, 300000));
  fake_.gpus[1].limit_mw = 300000;
  EXPECT_EQ(recovered(false).said.size(), 1U);
  EXPECT_EQ(fake_.calls[kSetter], 0) << "asked only what it would do";
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(recovered().said.size(), 1U);
  EXPECT_EQ(fake_.gpus[1].limit_mw, 600000U);
  EXPECT_TRUE(recovered().said.empty());
}

TEST_F(PowerCap, left_before_the_setter_was_called_changes_nothing) {
  leave_journal(entry(700000, 300000));
  (void)recovered();
  EXPECT_EQ(fake_.calls[kSetter], 0);
  EXPECT_EQ(files(), 0U);
}

TEST_F(PowerCap, journals_that_must_not_be_obeyed_are_not) {
  fake_.gpus[1].limit_mw = 300000;
  JournalEntry other_boot = entry(600000, 300000);
  other_boot.boot_id.back() = other_boot.boot_id.back() == '0' ? '1' : '0';
  for (const JournalEntry& bad : {other_boot, entry(900000, 300000), entry(1, 300000)}) {
    leave_journal(bad);
    const Recovery recovery = recovered();
    ASSERT_EQ(recovery.said.size(), 1U);
    EXPECT_NE(recovery.said[0].find("it is not obeyed and now called"), std::string::npos);
    EXPECT_TRUE(check_free(folder_, bad.gpu));
  }
  EXPECT_EQ(fake_.calls[kSetter], 0);
  EXPECT_EQ(files(), 3U) << "set aside, not lost";
}

TEST_F(PowerCap, a_journal_of_a_gpu_that_is_not_here_waits) {
  leave_journal(entry(600000, 300000));
  inventory_.gpus.pop_back();
  EXPECT_EQ(recovered().said.size(), 1U);
  EXPECT_EQ(files(), 1U);
}

TEST(power_folder, is_of_the_machine_and_the_user) {
  gpu::Machine machine;
  EXPECT_EQ(journal_folder(machine, 0, "/s", "/h").value(), "/run/corral");
  EXPECT_EQ(journal_folder(machine, 1000, "/s", "/h").value(), "/s/corral");
  EXPECT_EQ(journal_folder(machine, 1000, "relative", "/h").value(), "/h/.local/state/corral");
  EXPECT_FALSE(journal_folder(machine, 1000, nullptr, nullptr));
  machine = {host::Root("/sim"), true};
  EXPECT_EQ(journal_folder(machine, 0, "/s", "/h").value(), "/sim/run/corral");
}

}  // namespace
}  // namespace corral::power
