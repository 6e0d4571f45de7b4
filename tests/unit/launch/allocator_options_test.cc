// SPDX-License-Identifier: Apache-2.0
#include "launch/allocator_options.h"

#include <gtest/gtest.h>

namespace corral::launch {
namespace {

using Variables = std::vector<isolate::Setting>;

std::string torch(std::string_view conf) {
  const auto settings = torch_allocator(conf);
  if (!settings) return "error: " + settings.error().what + " | " + settings.error().hint;
  EXPECT_EQ(settings->variables.size(), 2U);
  EXPECT_EQ(settings->variables[0].name, "PYTORCH_ALLOC_CONF");
  EXPECT_EQ(settings->variables[1].name, "PYTORCH_CUDA_ALLOC_CONF");
  EXPECT_EQ(settings->variables[0].value, settings->variables[1].value);
  return settings->variables[0].value;
}

std::string error_of(const Result<AllocatorSettings>& settings) {
  return settings ? "none" : settings.error().what;
}

bool is_torch(std::string_view conf) { return torch_allocator(conf).has_value(); }

TEST(torch_allocator, takes_every_option_with_the_values_that_pytorch_takes) {
  for (const char* const conf : {
           "backend:native",
           "backend:cudaMallocAsync",
           "expandable_segments:True",
           "expandable_segments:False",
           "max_split_size_mb:20",
           "max_split_size_mb:2147483647",
           "max_non_split_rounding_mb:30",
           "roundup_power2_divisions:4",
           "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
           "roundup_power2_divisions:[64:0]",
           "garbage_collection_threshold:0.8",
           "garbage_collection_threshold:.5",
           "large_segment_size_mb:11",
           "release_lock_on_cudamalloc:True",
           "release_lock_on_hipmalloc:False",
           "graph_capture_record_stream_reuse:True",
           "per_process_memory_fraction:0",
           "per_process_memory_fraction:1.0",
           "throw_on_cudamalloc_oom:True",
           "roundup_bypass_threshold_mb:64",
           "pinned_use_cuda_host_register:True",
           "pinned_use_hip_host_register:True",
           "pinned_use_cuda_host_register:True,pinned_num_register_threads:128",
           "pinned_use_hip_host_register:True,pinned_num_register_threads:1",
           "pinned_use_background_threads:True",
           "pinned_reserve_segment_size_mb:2048",
           "pinned_max_round_threshold_mb:64",
           "pinned_max_cached_size_mb:0",
           "pinned_free_catch_all:True",
           "expandable_segments:True,expandable_segments_reserve:0.5",
           "expandable_segments_reserve:40G,expandable_segments:True",
           "expandable_segments:True,expandable_segments_reserve_by_class:[capture:0.25,rest:40G]",
           "large_segment_size_mb:12,max_split_size_mb:12",
           "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8",
           "backend:cudaMallocAsync,pinned_use_background_threads:True",
           "backend:cudaMallocAsync,per_process_memory_fraction:0.5",
           "backend:cudaMallocAsync,expandable_segments:False",
       })
    EXPECT_EQ(torch(conf), conf);
}

TEST(torch_allocator, blanks_are_left_out_as_pytorch_does) {
  EXPECT_EQ(torch(" expandable_segments : True , roundup_power2_divisions:[ 256:1, >:4 ]\n"),
            "expandable_segments:True,roundup_power2_divisions:[256:1,>:4]");
}

TEST(torch_allocator, values_that_pytorch_refuses_are_refused_before_the_job) {
  for (const char* const conf : {
           "expandable_segments:true",
           "expandable_segments:1",
           "backend:hipMallocAsync",
           "backend:cuda_malloc_async",
           "max_split_size_mb:19",
           "max_split_size_mb:-1",
           "max_split_size_mb:128M",
           "max_split_size_mb:2147483648",
           "max_non_split_rounding_mb:5",
           "large_segment_size_mb:10",
           "large_segment_size_mb:64,max_split_size_mb:32",
           "garbage_collection_threshold:0",
           "garbage_collection_threshold:1",
           "garbage_collection_threshold:80%",
           "garbage_collection_threshold:nan",
           "per_process_memory_fraction:1.01",
           "per_process_memory_fraction:-0.5",
           "roundup_power2_divisions:3",
           "roundup_power2_divisions:0",
           "roundup_power2_divisions:[]",
           "roundup_power2_divisions:[256:3]",
           "roundup_power2_divisions:[300:4]",
           "roundup_power2_divisions:[256]",
           "roundup_power2_divisions:[<:4]",
           "pinned_use_cuda_host_register:True,pinned_num_register_threads:256",
           "pinned_use_cuda_host_register:True,pinned_num_register_threads:3",
           "pinned_reserve_segment_size_mb:0",
           "pinned_max_cached_size_mb:",
           "pinned_free_catch_all:yes",
           "expandable_segments:True,expandable_segments_reserve:0",
           "expandable_segments:True,expandable_segments_reserve:40M",
           "expandable_segments:True,expandable_segments_reserve_by_class:0.5",
       })
    EXPECT_FALSE(is_torch(conf)) << conf;
}

TEST(torch_allocator, options_without_effect_beside_another_are_refused) {
  for (const char* const conf : {
           "backend:cudaMallocAsync,max_split_size_mb:128",
           "max_split_size_mb:128,backend:cudaMallocAsync",
           "backend:cudaMallocAsync,expandable_segments:True",
           "backend:cudaMallocAsync,garbage_collection_threshold:0.8",
           "backend:cudaMallocAsync,roundup_power2_divisions:4",
           "expandable_segments_reserve:0.5",
           "expandable_segments:False,expandable_segments_reserve:0.5",
           "pinned_num_register_threads:8",
       })
    EXPECT_FALSE(is_torch(conf)) << conf;
  EXPECT_EQ(
      torch("backend:cudaMallocAsync,max_split_size_mb:128"),
      "error: --torch-alloc \"max_split_size_mb:128\": backend:cudaMallocAsync has no use for "
      "it | leave one of the two out");
  EXPECT_EQ(torch("pinned_num_register_threads:8"),
            "error: --torch-alloc \"pinned_num_register_threads:8\": it has no effect without "
            "pinned_use_cuda_host_register:True | add pinned_use_cuda_host_register:True, or leave "
            "it out");
}

TEST(torch_allocator, an_unknown_option_is_named_with_the_nearest_and_the_list) {
  const std::string text = torch("expandable_segment:True");
  EXPECT_NE(text.find("PyTorch has no option \"expandable_segment\"; did you mean "
                      "expandable_segments?"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| PyTorch's options are backend, expandable_segments, "), std::string::npos);
  EXPECT_NE(torch("MAX_SPLIT_SIZE_MB:128").find("did you mean max_split_size_mb?"),
            std::string::npos);
  EXPECT_EQ(torch("x:1").find("did you mean"), std::string::npos);
}

TEST(torch_allocator, a_list_that_is_none_is_refused) {
  EXPECT_NE(torch("").find("it is empty"), std::string::npos);
  EXPECT_NE(torch(" ").find("it is empty"), std::string::npos);
  EXPECT_NE(torch("backend:native,").find("nothing between two commas"), std::string::npos);
  EXPECT_NE(torch("expandable_segments=True").find("not of the form name:value"),
            std::string::npos);
  EXPECT_NE(torch("backend:").find("not of the form name:value"), std::string::npos);
  EXPECT_NE(torch(":True").find("not of the form name:value"), std::string::npos);
  EXPECT_NE(torch("roundup_power2_divisions:[256:1").find("a [ without its ]"), std::string::npos);
  EXPECT_NE(torch("roundup_power2_divisions:256:1]").find("a [ without its ]"), std::string::npos);
  EXPECT_NE(torch("backend:native,backend:native").find("backend is given twice"),
            std::string::npos);
  EXPECT_NE(torch("back\x1b[31m:1").find("x1b"), std::string::npos) << "safe for a terminal";
}

TEST(torch_allocator, versions_that_do_not_know_an_option_are_named) {
  EXPECT_TRUE(torch_allocator("expandable_segments:True")->remarks.empty());
  EXPECT_EQ(torch_allocator("throw_on_cudamalloc_oom:True")->remarks,
            std::vector<std::string>{
                "throw_on_cudamalloc_oom: since torch 2.12; others refuse every setting with it"});
}

TEST(jax_allocator, sets_the_variables_that_jax_reads) {
  EXPECT_EQ(jax_allocator("preallocate:false,fraction:0.5,allocator:cuda_async")->variables,
            (Variables{{"XLA_PYTHON_CLIENT_PREALLOCATE", "false"},
                       {"XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5"},
                       {"XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"}}));
  for (const char* const conf :
       {"allocator:default", "allocator:bfc", "allocator:platform", "preallocate:true",
        "fraction:1", "fraction:.9", "allocator:platform,preallocate:false"})
    EXPECT_TRUE(jax_allocator(conf)) << conf;
}

TEST(jax_allocator, refuses_what_jax_would_refuse_or_ignore) {
  EXPECT_EQ(error_of(jax_allocator("allocator:cuda")),
            "--jax-alloc \"allocator:cuda\": wanted is default, bfc, platform, cuda_async");
  EXPECT_EQ(error_of(jax_allocator("preallocate:False")),
            "--jax-alloc \"preallocate:False\": wanted is true, false");
  EXPECT_EQ(error_of(jax_allocator("allocator:platform,fraction:0.5")),
            "--jax-alloc \"fraction:0.5\": allocator:platform asks the driver each time and keeps "
            "nothing");
  EXPECT_EQ(error_of(jax_allocator("mem_fraction:0.5")),
            "--jax-alloc: JAX has no option \"mem_fraction\"; did you mean fraction?");
  for (const char* const conf : {"fraction:0", "fraction:2", "fraction:half", "fraction:1.2.3",
                                 "preallocate:true,allocator:platform", "growth:true", ""})
    EXPECT_FALSE(jax_allocator(conf)) << conf;
}

TEST(tensorflow_allocator, sets_and_refuses_what_tensorflow_reads) {
  EXPECT_EQ(tensorflow_allocator("growth:true,allocator:cuda_malloc_async")->variables,
            (Variables{{"TF_FORCE_GPU_ALLOW_GROWTH", "true"},
                       {"TF_GPU_ALLOCATOR", "cuda_malloc_async"}}));
  for (const char* const conf : {"growth:false", "allocator:cuda_malloc", "allocator:memory_guard",
                                 "growth:true,allocator:cuda_malloc"})
    EXPECT_TRUE(tensorflow_allocator(conf)) << conf;
  EXPECT_EQ(error_of(tensorflow_allocator("allocator:cuda_async")),
            "--tf-alloc \"allocator:cuda_async\": wanted is cuda_malloc_async, cuda_malloc, "
            "memory_guard");
  EXPECT_EQ(error_of(tensorflow_allocator("grow:true")),
            "--tf-alloc: TensorFlow has no option \"grow\"; did you mean growth?");
  for (const char* const conf : {"growth:1", "growth:True", "growth:false,allocator:cuda_malloc"})
    EXPECT_FALSE(tensorflow_allocator(conf)) << conf;
}

std::vector<std::string> notes(const std::vector<const char*>& environment,
                               AllocatorSettings& settings) {
  std::vector<const char*> entries = environment;
  entries.push_back(nullptr);
  return settle_with(Environment(entries.data()), settings);
}

TEST(allocator_settings, another_value_in_the_environment_is_told) {
  auto settings = *torch_allocator("expandable_segments:True");
  EXPECT_EQ(notes({"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"}, settings),
            std::vector<std::string>{"PYTORCH_CUDA_ALLOC_CONF is max_split_size_mb:64 in the "
                                     "environment: the job gets expandable_segments:True"});
  EXPECT_TRUE(
      notes({"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "PYTORCH_ALLOC_CONF="}, settings)
          .empty());
  EXPECT_EQ(notes({"PYTORCH_NO_CUDA_MEMORY_CACHING=1"}, settings).size(), 1U);
}

TEST(allocator_settings, jax_finds_one_memory_fraction_only) {
  auto settings = *jax_allocator("fraction:0.5");
  EXPECT_EQ(notes({"XLA_CLIENT_MEM_FRACTION=.9"}, settings),
            std::vector<std::string>{
                "XLA_CLIENT_MEM_FRACTION is .9 in the environment: the job gets it empty"});
  EXPECT_EQ(settings.variables, (Variables{{"XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5"},
                                           {"XLA_CLIENT_MEM_FRACTION", ""}}));
  auto other = *jax_allocator("preallocate:false");
  EXPECT_TRUE(notes({"XLA_CLIENT_MEM_FRACTION=.9"}, other).empty());
  EXPECT_EQ(other.variables.size(), 1U);
}

}  // namespace
}  // namespace corral::launch
