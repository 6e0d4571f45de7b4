// SPDX-License-Identifier: Apache-2.0
#include "cli/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

namespace corral::cli {
namespace {

// The texts as the user gave them, before they are checked.
struct Texts : WatchTexts {
  std::string gpus;
  std::string enforce = "auto";
  bool no_observe = false;
  std::string cpus;
  std::string mems;
  std::string memory;
  std::string pids;
  std::string mps;
  std::string torch_alloc;
  std::string jax_alloc;
  std::string tf_alloc;
};

void add_options(CLI::App& app, RunOptions& options, Texts& texts) {
  app.add_option(
         "--gpus,--gpu", texts.gpus,
         "the job's GPUs: 1 | 0,2-3 | GPU-2b68 (UUID prefix) | 00:07.0 | MIG-… | all | none;\n"
         "without it nothing is refused, only watched")
      ->envname("CORRAL_GPUS");
  app.add_option("--enforce", texts.enforce,
                 "auto | env | some of cgroup,mount,landlock; auto takes the best that is there")
      ->envname("CORRAL_ENFORCE");
  app.add_flag("--tight", options.tight, "every layer at once, for code that tries to get out");
  app.add_option("--refuse", options.refuse, "refuse this device node too (repeatable)");
  app.add_flag("--allow-unenforced", options.allow_unenforced,
               "go on with CUDA_VISIBLE_DEVICES alone where nothing can be enforced");
  app.add_flag(
      "--quiet-idle", options.quiet_idle,
      "CUDA_DISABLE_PERF_BOOST=1 for the job: a GPU with an idle context stays at idle\n"
      "clocks and power; a short kernel after a pause of 10 ms takes about 4 times as long");
  app.add_option("--mps", texts.mps,
                 "each process's share of the GPU through its MPS daemon (corral mps start):\n"
                 "30% of the multiprocessors | 30%,8G device memory too");
  app.add_option("--cpus", texts.cpus,
                 "the job's CPUs: 0-15,32 | auto, those of the NUMA node of its GPUs");
  app.add_option("--mems", texts.mems, "its NUMA nodes for memory: 0,1 | auto");
  app.add_option("--memory", texts.memory,
                 "the most memory it may have, swap included: 512M | 1.5G");
  app.add_option("--pids", texts.pids, "the most processes and threads it may have");
  app.add_option(
      "--torch-alloc", texts.torch_alloc,
      "PyTorch's allocator, checked first: expandable_segments:True,max_split_size_mb:128");
  app.add_option("--jax-alloc", texts.jax_alloc,
                 "JAX's: preallocate:false,fraction:0.5,allocator:default|bfc|platform|cuda_async");
  app.add_option("--tf-alloc", texts.tf_alloc,
                 "TensorFlow's: growth:true,allocator:cuda_malloc_async|cuda_malloc|memory_guard");
  app.add_flag("--dry-run", options.dry_run, "print the plan, start nothing");
  app.add_flag("--print-commands", options.print_commands,
               "print what an administrator would type by hand (cgroup v1, v2, systemd-run),\n"
               "start nothing");
  app.add_flag("--exec", options.exec, "confine and become the job: nothing watches, no verdict");
  app.add_flag("--no-observe", texts.no_observe, "do not put the observing library into the job");
  add_watch_options(app, options, texts);
}

Result<std::string> absolute(const std::string& path) {
  if (path.empty())
    return fail("--refuse: the path is empty", "name a device node: --refuse /dev/kvm");
  std::error_code error;
  const auto full = std::filesystem::absolute(path, error);
  if (error) return fail("--refuse " + path + ": " + error.message());
  return full.lexically_normal().string();
}

Result<void> take_limits(const CLI::App& app, const Texts& texts, isolate::LimitsRequest& limits) {
  if (app.count("--cpus") > 0) {
    CORRAL_TRY(limits.cpus, isolate::parse_list_limit("--cpus", texts.cpus));
  }
  if (app.count("--mems") > 0) {
    CORRAL_TRY(limits.mems, isolate::parse_list_limit("--mems", texts.mems));
  }
  if (app.count("--memory") > 0) {
    CORRAL_TRY(limits.memory_bytes, isolate::parse_memory_limit(texts.memory));
  }
  if (app.count("--pids") > 0) {
    CORRAL_TRY(limits.pids, isolate::parse_pids_limit(texts.pids));
  }
  return {};
}

using AllocatorParser = Result<launch::AllocatorSettings>(std::string_view);

Result<void> take_allocator(const CLI::App& app, const char* option, const std::string& text,
                            AllocatorParser* parse, launch::AllocatorSettings& all) {
  if (app.count(option) == 0) return {};
  CORRAL_TRY(const launch::AllocatorSettings one, parse(text));
  all.variables.insert(all.variables.end(), one.variables.begin(), one.variables.end());
  all.remarks.insert(all.remarks.end(), one.remarks.begin(), one.remarks.end());
  return {};
}

Result<void> take_allocators(const CLI::App& app, const Texts& texts,
                             launch::AllocatorSettings& all) {
  CORRAL_CHECK(
      take_allocator(app, "--torch-alloc", texts.torch_alloc, launch::torch_allocator, all));
  CORRAL_CHECK(take_allocator(app, "--jax-alloc", texts.jax_alloc, launch::jax_allocator, all));
  return take_allocator(app, "--tf-alloc", texts.tf_alloc, launch::tensorflow_allocator, all);
}

Result<void> take_texts(const CLI::App& app, const Texts& texts, RunOptions& options) {
  CORRAL_CHECK(refuse_empty_variables({"CORRAL_GPUS", "CORRAL_ENFORCE"}));
  CORRAL_CHECK(take_watch_texts(app, texts, options));
  if (app.count("--gpus") > 0) options.gpus = texts.gpus;
  CORRAL_TRY(options.methods, isolate::parse_methods(texts.enforce));
  if (app.count("--mps") > 0) {
    CORRAL_TRY(options.mps, mps::parse_share(texts.mps));
    if (!options.gpus) return fail("--mps: which GPU?", "name it: --gpus 1 --mps " + texts.mps);
  }
  CORRAL_CHECK(take_limits(app, texts, options.limits));
  CORRAL_CHECK(take_allocators(app, texts, options.allocators));
  options.observe = !texts.no_observe;
  for (std::string& path : options.refuse) {
    CORRAL_TRY(std::string full, absolute(path));
    path = std::move(full);
  }
  return {};
}

constexpr std::string_view kExamples =
    "\nexamples:\n"
    "  corral run --gpus 1 -- python3 train.py\n"
    "      GPU 1 alone. Inside the job it is cuda:0.\n"
    "  corral run --gpus 0,2-3 -- torchrun --nproc-per-node 3 train.py\n"
    "      one confinement around all ranks: peer access and NCCL work.\n"
    "  corral run --gpus 1 --tight --strict --report run.json -- ./unknown-binary\n"
    "      every layer; exit 3 if it strayed; everything seen in run.json.\n"
    "  corral run --gpus none --refuse /dev/kvm -- make check\n"
    "      no GPU, and no /dev/kvm either; works on a machine without a GPU.\n"
    "  corral run --gpus 1 --cpus auto --mems auto --memory 64G -- python3 train.py\n"
    "      beside its GPU: the cores and the memory of the same NUMA node, 64 GiB at most.\n"
    "  corral run --gpus 1 --dry-run -- true\n"
    "      which layer would hold, which nodes it would refuse.\n"
    "  corral run --gpus 1 -- docker run --gpus all image\n"
    "      told before it starts: docker's daemon works outside, on other GPUs; and what to type.\n"
    "\nexit code: the job's own (128+N when signal N ended it); 125 Corral could not set up, 126 "
    "not executable,\n"
    "127 not found, 3 with --strict, 64 usage.\n";

constexpr const char* kDescription =
    "Confine a command to its GPUs, watch it, and say what it touched.";

}  // namespace

std::string run_help() {
  CLI::App app(kDescription, "corral run");
  RunOptions options;
  Texts texts;
  add_options(app, options, texts);
  return options_help(app) + std::string(kExamples);
}

Result<RunOptions> parse_run_options(const Arguments& arguments) {
  CLI::App app(kDescription, "corral run");
  RunOptions options;
  Texts texts;
  add_options(app, options, texts);
  CORRAL_CHECK(parse_options(app, arguments, " --gpus 1"));
  CORRAL_CHECK(take_texts(app, texts, options));
  if (options.exec && (options.strict || options.json || !options.report.empty()))
    return fail(
        "--exec: nothing watches the job, so there is no verdict for --strict, --json or --report",
        "leave --exec out, or these");
  options.job = arguments.job;
  if (options.job.empty() && !options.dry_run && !options.print_commands)
    return fail("no command", "corral run [options] -- CMD…: the command comes after --");
  return options;
}

}  // namespace corral::cli
