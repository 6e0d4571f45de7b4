// SPDX-License-Identifier: Apache-2.0
// Given and held: what containers and batch systems say, against what can be opened.
#include "isolate/around.h"

#include <gtest/gtest.h>

#include "made_up_hosts.h"

namespace corral::isolate {
namespace {

using Kind = host::Surrounding::Kind;

gpu::Inventory openable(unsigned count, unsigned closed = 0) {
  gpu::Inventory inventory;
  for (unsigned i = 0; i < count; ++i) {
    inventory.gpus.push_back(gpu(i));
    inventory.gpus.back().accessible = true;
  }
  for (unsigned i = 0; i < closed; ++i) {
    inventory.hidden.push_back(gpu(count + i));
    inventory.hidden.back().accessible = false;
  }
  return inventory;
}

host::Surrounding slurm(bool inside = true) {
  return {.kind = Kind::slurm,
          .name = "Slurm job 4711",
          .evidence = "SLURM_JOB_ID",
          .in_its_cgroup = inside};
}

host::Surrounding docker(bool privileged = false) {
  return {.kind = Kind::docker,
          .name = "docker container 0f3a",
          .evidence = "/.dockerenv",
          .privileged = privileged};
}

Around judged(const host::Surrounding& place, const host::Variables& variables,
              const gpu::Inventory& inventory) {
  return judge_surroundings({place}, variables, inventory).at(0);
}

TEST(around, a_plain_host_has_nothing_to_judge) {
  EXPECT_TRUE(judge_surroundings({}, {{"SLURM_JOB_GPUS", "1"}}, openable(2)).empty());
}

TEST(around, a_job_whose_cgroup_holds_is_said_to_be_held) {
  const Around around = judged(slurm(), {{"SLURM_JOB_GPUS", "2,3"}}, openable(2, 6));
  EXPECT_EQ(around.held, true);
  EXPECT_EQ(around.given_count, 2U);
  EXPECT_EQ(around.text,
            "in Slurm job 4711 (SLURM_JOB_ID), given 2 GPUs (SLURM_JOB_GPUS=2,3): held, of 8 only "
            "GPU 0 and 1 can be opened");
}

TEST(around, a_job_that_nothing_holds_is_told) {
  const Around around = judged(slurm(), {{"SLURM_JOB_GPUS", "2,3"}}, openable(4));
  EXPECT_EQ(around.held, false);
  EXPECT_EQ(around.text,
            "in Slurm job 4711 (SLURM_JOB_ID), given 2 GPUs (SLURM_JOB_GPUS=2,3), but GPU 0, 1, 2 "
            "and 3 can be opened: nothing keeps the job to its own, as with ConstrainDevices=no");
}

TEST(around, a_shell_outside_of_the_jobs_cgroup_does_not_blame_slurm) {
  const Around around = judged(slurm(false), {{"SLURM_JOB_GPUS", "1"}}, openable(2));
  EXPECT_EQ(around.held, false);
  EXPECT_NE(around.text.find("this process is in no cgroup of the job's"), std::string::npos);
}

TEST(around, the_step_counts_before_the_job) {
  const Around around =
      judged(slurm(), {{"SLURM_JOB_GPUS", "0-3"}, {"SLURM_STEP_GPUS", "2"}}, openable(1, 3));
  EXPECT_EQ(around.given_by, "SLURM_STEP_GPUS=2");
  EXPECT_EQ(around.held, true);
}

TEST(around, a_range_is_counted) {
  EXPECT_EQ(judged(slurm(), {{"SLURM_JOB_GPUS", "0-3,6"}}, openable(8)).given_count, 5U);
}

TEST(around, all_gpus_of_the_machine_may_be_given) {
  const Around around = judged(slurm(), {{"SLURM_JOB_GPUS", "0,1"}}, openable(2));
  EXPECT_EQ(around.held, true);
  EXPECT_TRUE(around.text.ends_with(": all that there is"));
}

// The numbers of a scheduler are not ours: the count alone is judged.
TEST(around, numbers_of_a_scheduler_name_no_gpu_for_certain) {
  EXPECT_FALSE(judged(slurm(), {{"SLURM_JOB_GPUS", "0"}}, openable(2)).given);
}

TEST(around, fewer_than_given_is_told) {
  const Around around = judged(slurm(), {{"SLURM_JOB_GPUS", "0,1"}}, openable(1, 1));
  EXPECT_TRUE(around.text.ends_with(", but only GPU 0 can be opened")) << around.text;
}

TEST(around, a_job_that_names_no_gpu_is_not_judged) {
  const Around around = judged(slurm(), {{"CUDA_VISIBLE_DEVICES", "0"}}, openable(2));
  EXPECT_FALSE(around.held);
  EXPECT_EQ(around.text,
            "in Slurm job 4711 (SLURM_JOB_ID), which names no GPU; GPU 0 and 1 can be opened");
}

TEST(around, what_is_no_list_of_numbers_is_not_counted) {
  for (const char* value : {"0:1", "a", "1,,2", "-1", "99999999999"}) {
    const Around around = judged(slurm(), {{"SLURM_JOB_GPUS", value}}, openable(2));
    EXPECT_FALSE(around.given_count) << value;
    EXPECT_FALSE(around.held) << value;
  }
}

TEST(around, the_users_own_variable_accuses_no_batch_system) {
  const host::Surrounding pbs{.kind = Kind::pbs, .name = "PBS job 1", .evidence = "PBS_JOBID"};
  const Around around = judged(pbs, {{"CUDA_VISIBLE_DEVICES", "0"}}, openable(2));
  EXPECT_FALSE(around.held);
  EXPECT_NE(around.text.find("CUDA_VISIBLE_DEVICES=0; GPU 0 and 1"), std::string::npos);
}

TEST(around, a_container_with_all_gpus_is_said_as_what_it_is) {
  const Around around = judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "all"}}, openable(2));
  EXPECT_FALSE(around.held);
  EXPECT_EQ(around.text,
            "in docker container 0f3a (/.dockerenv), NVIDIA_VISIBLE_DEVICES=all; GPU 0 and 1 can "
            "be opened");
}

TEST(around, a_privileged_container_has_more_than_its_variable_names) {
  const Around around = judged(docker(true), {{"NVIDIA_VISIBLE_DEVICES", "0"}}, openable(8));
  EXPECT_EQ(around.held, false);
  EXPECT_TRUE(around.text.starts_with("in privileged docker container 0f3a"));
  EXPECT_TRUE(around.text.ends_with("the container is privileged"));
}

TEST(around, uuids_are_certain) {
  const Around held = judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "GPU-0aaa"}}, openable(1, 1));
  EXPECT_EQ(held.given, (std::vector<unsigned>{0}));
  EXPECT_EQ(held.held, true);
  const Around open = judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "gpu-1AAA"}}, openable(2));
  EXPECT_FALSE(open.given) << "only upper case begins a UUID";
  const Around other = judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "GPU-1aaa"}}, openable(2));
  EXPECT_EQ(other.given, (std::vector<unsigned>{1}));
  EXPECT_EQ(other.held, false);
}

TEST(around, none_is_a_statement_and_void_is_not) {
  EXPECT_EQ(judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "none"}}, openable(1)).held, false);
  EXPECT_FALSE(judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "void"}}, openable(1)).held);
}

TEST(around, a_machine_without_gpus_has_none_to_hold) {
  const Around around = judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "all"}}, openable(0));
  EXPECT_TRUE(around.text.ends_with("there is no GPU here"));
}

TEST(around, access_that_was_not_probed_is_not_judged) {
  gpu::Inventory inventory = openable(2);
  inventory.gpus[0].accessible.reset();
  const Around around = judged(slurm(), {{"SLURM_JOB_GPUS", "0"}}, inventory);
  EXPECT_FALSE(around.held);
  EXPECT_NE(around.text.find("not known"), std::string::npos);
}

TEST(around, minors_are_a_guess_that_must_fit) {
  const gpu::Inventory inventory = openable(4);
  const Around fits = judged(slurm(), {{"SLURM_JOB_GPUS", "3,2"}}, inventory);
  EXPECT_EQ(given_by_minor(fits, inventory), (std::vector<unsigned>{2, 3}));
  const Around not_there = judged(slurm(), {{"SLURM_JOB_GPUS", "7"}}, inventory);
  EXPECT_FALSE(given_by_minor(not_there, inventory));
  const Around container = judged(docker(), {{"NVIDIA_VISIBLE_DEVICES", "1"}}, inventory);
  EXPECT_FALSE(given_by_minor(container, inventory));
}

}  // namespace
}  // namespace corral::isolate
