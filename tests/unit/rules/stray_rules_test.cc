// SPDX-License-Identifier: Apache-2.0
// What the recorded runs do not have: other evidence for the same causes, and look-alikes about
// which nothing wrong may be said.
#include <gtest/gtest.h>

#include <algorithm>

#include "recorded_runs.h"
#include "rules/engine.h"

namespace corral::rules {
namespace {

using snapshot::Context;
using snapshot::Init;
using snapshot::PythonFrame;
using JobRun = snapshot::Run;

const std::string kTrain = "/home/ana/job/train.py";
const std::string kTorchCuda = package("torch/cuda/__init__.py");
const std::string kC10 = package("torch/lib/libc10_cuda.so");
const std::string kTorch = package("torch/lib/libtorch_cuda.so");

PythonFrame frame(const std::string& file, unsigned line, const std::string& function) {
  return {.file = file, .line = line, .function = function};
}
PythonFrame own(unsigned line = 1, const std::string& function = "<module>") {
  return frame(kTrain, line, function);
}

// The id of the finding of the last context; the source is that of kTrain.
std::string id_of(std::vector<Context> contexts, const std::string& source = {},
                  JobRun run = run_for_gpu_1()) {
  for (std::size_t i = 0; i < contexts.size(); ++i) contexts[i].time_s = static_cast<double>(i + 1);
  run.contexts = std::move(contexts);
  if (!source.empty()) run.sources[kTrain] = source;
  const Verdict verdict = judge(run);
  EXPECT_EQ(std::ranges::count_if(run.contexts, &Context::stray),
            static_cast<std::ptrdiff_t>(verdict.findings.size()));
  return run.contexts.back().finding;
}
std::string id_of(const Context& context, const std::string& source = {}) {
  return id_of(std::vector{context}, source);
}

Context on_thread(Context context, pid_t tid) {
  context.tid = tid;
  context.thread = "worker";
  context.stack.python.push_back(frame("/usr/lib/python3.12/threading.py", 1010, "run"));
  context.stack.python.push_back(frame("/usr/lib/python3.12/threading.py", 1030, "_bootstrap"));
  return context;
}
Context set_device_1() {
  return context_on(1, {frame(kTorchCuda, 638, "set_device"), own(1)}, {kC10});
}
Context named(Context context, const std::vector<std::string>& functions) {
  for (std::size_t i = 0; i < functions.size(); ++i)
    context.stack.native[i].function = functions[i];
  return context;
}

// Lines and Python's manner of naming functions differ among versions: the rules do not look.
TEST(frames, other_lines_and_qualified_names_are_the_same_function) {
  EXPECT_EQ(id_of(context_on(0, {frame("/usr/lib/python3/dist-packages/torch/cuda/__init__.py", 7,
                                       "synchronize"),
                                 own()})),
            "stray.sync-default-device");
  EXPECT_EQ(
      id_of(context_on(0, {frame(package("torch/cuda/streams.py"), 7, "Event.record"), own()})),
      "stray.stream-event");
}

TEST(frames, a_user_file_or_another_package_of_the_same_name_is_not_the_library) {
  for (const std::string& file :
       {std::string("/home/ana/job/torch/cuda/__init__.py"), package("mytorch/cuda/__init__.py"),
        package("vendor/torch/cuda/__init__.py"), std::string("/home/ana/job/torch_utils.py")})
    EXPECT_EQ(id_of(context_on(0, {frame(file, 1161, "synchronize"), own()})), "stray.unexplained")
        << file;
}

TEST(frames, a_checkout_of_torch_is_known_by_its_own_libraries) {
  const std::string file = "/home/ana/pytorch/torch/cuda/__init__.py";
  Context context =
      context_on(0, {frame(file, 1161, "synchronize"), own(3)},
                 {"/usr/lib/libcudart.so.13", "/home/ana/pytorch/torch/lib/libc10_cuda.so"});
  JobRun run = run_for_gpu_1();
  run.contexts = {context};
  ASSERT_EQ(judge(run).findings.size(), 1U);
  EXPECT_EQ(run.contexts[0].finding, "stray.sync-default-device");
  EXPECT_EQ(run.contexts[0].culprit, own(3));
}

TEST(frames, the_stack_of_a_context_that_was_only_found_explains_nothing) {
  Context context = context_on(0, {frame(kTorchCuda, 1161, "synchronize"), own()});
  context.found = true;
  EXPECT_EQ(id_of(context), "stray.unexplained");
}

TEST(frames, the_main_threads_frames_are_not_the_calls) {
  Context context = context_on(0, {});
  context.stack.main_thread = {frame(kTorchCuda, 1161, "synchronize"), own()};
  EXPECT_EQ(id_of(context), "stray.unexplained");
}

TEST(sync_default_device, not_when_the_line_gives_a_device) {
  const Context context = context_on(0, {frame(kTorchCuda, 1161, "synchronize"), own()});
  EXPECT_EQ(id_of(context, "torch.cuda.synchronize(device)\n"), "stray.unexplained");
  EXPECT_EQ(id_of(context, "torch.cuda.synchronize(\n)\n"), "stray.sync-default-device");
  EXPECT_EQ(id_of(context), "stray.sync-default-device");
}

TEST(sync_default_device, not_on_another_than_device_0_nor_after_another_was_chosen) {
  Context context = context_on(0, {frame(kTorchCuda, 1161, "synchronize"), own()});
  EXPECT_EQ(id_of({set_device_1(), context}), "stray.unexplained");
  context.ordinal = 3;
  EXPECT_EQ(id_of(context), "stray.unexplained");
}

TEST(sync_default_device, inside_of_a_library_the_users_line_is_named) {
  Context context =
      context_on(0, {frame(kTorchCuda, 604, "__enter__"), frame(kTorchCuda, 1161, "synchronize"),
                     frame(package("lightning/trainer.py"), 5, "fit"), own(9)});
  JobRun run = run_for_gpu_1();
  run.contexts = {context};
  const Verdict verdict = judge(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].id, "stray.sync-default-device");
  EXPECT_EQ(run.contexts[0].culprit, own(9));
  EXPECT_NE(verdict.findings[0].evidence[1].find("lightning/trainer.py:5 in fit"),
            std::string::npos);
}

TEST(stream_event, not_when_the_line_gives_a_device) {
  const Context made =
      context_on(0, {frame(package("torch/cuda/streams.py"), 43, "__new__"), own()});
  EXPECT_EQ(id_of(made, "s = torch.cuda.Stream(device=d)\n"), "stray.unexplained");
  EXPECT_EQ(id_of(made, "s = torch.cuda.Stream(d)\n"), "stray.unexplained");
  EXPECT_EQ(id_of(made, "s = torch.cuda.Stream(priority=-1)\n"), "stray.stream-event");
}

TEST(default_device, the_line_decides_between_no_number_and_the_number) {
  const Context context = context_on(0, {own()}, {kC10});
  for (const char* bare :
       {"x = y.cuda()\n", "x = y.cuda(non_blocking=True)\n", "x = y.to('cuda')\n",
        "x = torch.ones(3, device=torch.device('cuda'))\n"})
    EXPECT_EQ(id_of(context, bare), "stray.default-device") << bare;
  for (const char* numbered :
       {"x = y.cuda(0)\n", "x = y.to('cuda:0')\n", "x = y.to(f'cuda:{rank}')\n",
        "x = torch.ones(3, device=torch.device('cuda', 0))\n", "x = y.cuda(rank)\n",
        "x = torch.ones(3, device=torch.device('cuda', rank))\n", "x = torch.ones(3, device=0)\n"})
    EXPECT_EQ(id_of(context, numbered), "stray.named-device") << numbered;
}

TEST(default_device, a_device_that_is_assigned_once_in_the_file_is_read_there) {
  const Context context = context_on(0, {own(2)}, {kC10});
  EXPECT_EQ(id_of(context, "device = torch.device('cuda' if ok else 'cpu')\nx = y.to(device)\n"),
            "stray.default-device");
  EXPECT_EQ(id_of(context, "device = 'cuda:0'\nx = y.to(device)\n"), "stray.named-device");
}

TEST(default_device, says_both_ways_where_the_line_does_not_tell) {
  JobRun run = run_for_gpu_1();
  run.contexts = {context_on(0, {own()}, {kC10})};
  run.sources[kTrain] = "x = y.to(args.device)\n";
  const Verdict verdict = judge(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_NE(verdict.findings[0].cause.find("Either"), std::string::npos);
}

TEST(default_device, not_after_another_device_was_chosen_nor_on_another_ordinal) {
  Context context = context_on(0, {own(2)}, {kC10});
  EXPECT_EQ(id_of({set_device_1(), context}), "stray.unexplained");
  context.ordinal = 1;
  EXPECT_EQ(id_of(context), "stray.unexplained");
}

TEST(default_device, native_code_of_nobody_known_is_not_explained) {
  EXPECT_EQ(id_of(context_on(0, {own()}, {"/home/ana/job/libkernels.so"})), "stray.unexplained");
  EXPECT_EQ(id_of(context_on(0, {}, {kC10})), "stray.unexplained");
  EXPECT_EQ(id_of(context_on(0, {})), "stray.unexplained");
}

TEST(named_device, a_rank_that_chose_it) {
  EXPECT_EQ(id_of(context_on(0, {frame(kTorchCuda, 638, "set_device"), own()}, {kC10})),
            "stray.named-device");
}

TEST(pinned_memory, by_the_name_of_the_native_function) {
  EXPECT_EQ(id_of(named(context_on(0, {own()}, {"/v/libcudart.so.13", kTorch}), {"cudaHostAlloc"})),
            "stray.pinned-memory");
}

TEST(pinned_memory, not_what_nccl_pins_and_not_by_text_when_a_context_was_there) {
  EXPECT_EQ(id_of(named(context_on(0, {own()}, {"/v/libcudart.so.13", "/v/libnccl.so.2"}),
                        {"cudaHostAlloc"})),
            "stray.unexplained");
  EXPECT_EQ(id_of({context_on(1, {own()}, {kC10}), context_on(0, {own()}, {kTorch})},
                  "x = y.pin_memory()\n"),
            "stray.unexplained");
}

TEST(pinned_memory, the_loop_is_named_only_while_the_main_thread_stands_in_the_loader) {
  Context context = on_thread(
      context_on(0, {frame(package("torch/utils/data/_utils/pin_memory.py"), 57, "pin_memory")},
                 {kTorch}),
      11);
  context.stack.main_thread = {own(30, "train")};
  JobRun run = run_for_gpu_1();
  run.contexts = {context};
  const Verdict verdict = judge(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].id, "stray.pinned-memory");
  EXPECT_NE(run.contexts[0].culprit, own(30, "train"));
}

TEST(load_without_map_location, not_when_one_was_given) {
  const std::string file = package("torch/serialization.py");
  std::vector<PythonFrame> stack = {frame(file, 734, "default_restore_location"),
                                    frame(file, 1570, "load"), own()};
  EXPECT_EQ(id_of(context_on(0, stack, {kC10})), "stray.load-without-map-location");
  EXPECT_EQ(id_of(context_on(0, stack, {kC10}), "torch.load(p, map_location=d)\n"),
            "stray.unexplained");
  stack.insert(stack.begin() + 1, frame(file, 1900, "restore_location"));
  EXPECT_EQ(id_of(context_on(0, stack, {kC10})), "stray.unexplained");
}

TEST(rank_without_set_device, not_for_a_rank_on_its_own_gpu_or_with_a_device_in_the_call) {
  const Context context = context_on(
      0, {frame(package("torch/distributed/distributed_c10d.py"), 5030, "barrier"), own()}, {kC10});
  EXPECT_EQ(id_of(context), "stray.rank-without-set-device");
  EXPECT_EQ(id_of(context, "dist.barrier(device_ids=[0])\n"), "stray.unexplained");
  JobRun run = run_for_gpu_1();
  run.inits[0].rank_variables = {{"LOCAL_RANK", "0"}};
  EXPECT_EQ(id_of({context}, {}, run), "stray.unexplained");
}

TEST(thread_device_zero, only_when_another_thread_had_another_device) {
  const Context stray = on_thread(context_on(0, {own(5, "serve")}, {kC10}), 11);
  EXPECT_EQ(id_of({set_device_1(), stray}), "stray.thread-device-zero");
  EXPECT_EQ(id_of({stray}), "stray.default-device");
  EXPECT_EQ(id_of({on_thread(set_device_1(), 11), stray}), "stray.unexplained");
}

TEST(thread_device_zero, not_a_thread_that_names_its_device) {
  const Context stray = on_thread(context_on(0, {own(1, "serve")}, {kC10}), 11);
  EXPECT_EQ(id_of({set_device_1(), stray}, "x = y.to('cuda:0')\n"), "stray.named-device");
  const Context chosen =
      on_thread(context_on(0, {frame(kTorchCuda, 638, "set_device"), own(1, "serve")}, {kC10}), 11);
  EXPECT_EQ(id_of({set_device_1(), chosen}), "stray.named-device");
}

TEST(thread_device_zero, a_wait_in_a_thread_after_set_device_elsewhere_is_the_threads_fault) {
  const Context stray = on_thread(
      context_on(0, {frame(kTorchCuda, 1161, "synchronize"), own(5, "serve")}, {kC10}), 11);
  JobRun run = run_for_gpu_1();
  run.contexts = {set_device_1(), stray};
  run.contexts[0].time_s = 1;
  run.contexts[1].time_s = 2;
  const Verdict verdict = judge(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].id, "stray.thread-device-zero");
  EXPECT_NE(verdict.findings[0].evidence.back().find("[stray.sync-default-device]"),
            std::string::npos)
      << "the other possibility is told";
}

TEST(restored_device, by_the_names_of_native_functions) {
  const auto guarded = [](const std::string& caller) {
    return named(context_on(0, {}, {"/usr/lib/libcudart.so.13", caller}),
                 {"cudaSetDevice", "restore"});
  };
  const Context work = context_on(1, {}, {"/home/ana/job/guard"});
  EXPECT_EQ(id_of({work, guarded("/home/ana/job/guard")}), "stray.restored-device");
  EXPECT_EQ(id_of({guarded("/home/ana/job/guard")}), "stray.unexplained")
      << "a first choice puts nothing back";
  EXPECT_EQ(id_of({work, guarded(kC10)}), "stray.unexplained")
      << "PyTorch sets devices all the time";
  Context elsewhere = work;
  elsewhere.tid = 12;
  EXPECT_EQ(id_of({elsewhere, guarded("/home/ana/job/guard")}), "stray.unexplained")
      << "another thread's work";
}

TEST(restored_device, a_cupy_block_that_names_this_device_restores_nothing) {
  const std::string module = package("cupy/cuda/device.cpython-312-x86_64-linux-gnu.so");
  const std::vector contexts = {context_on(1, {own(1)}, {module}),
                                context_on(0, {own(2)}, {module})};
  EXPECT_EQ(id_of(contexts, "Device(1).use()\nwith Device(0):\n  pass\n"), "stray.named-device");
  EXPECT_EQ(id_of(contexts, "x = 1\nDevice(n).use()\n"), "stray.named-device");
  EXPECT_EQ(id_of(contexts, "x = 1\nwith Device(1):\n  pass\n"), "stray.restored-device");
  EXPECT_EQ(id_of(contexts), "stray.unexplained") << "without the text both are possible";
}

TEST(framework_opens_all, tensorflow_and_only_with_more_than_one_gpu) {
  const std::string module = package("tensorflow/libtensorflow_cc.so.2");
  const std::vector<PythonFrame> stack = {
      frame(package("tensorflow/python/eager/context.py"), 600, "ensure_initialized"), own(4)};
  EXPECT_EQ(id_of({context_on(1, stack, {module}), context_on(0, stack, {module})}),
            "stray.framework-opens-all");
  EXPECT_EQ(id_of({context_on(0, stack, {module})}), "stray.unexplained");
}

TEST(framework_opens_all, not_by_the_name_of_a_folder_of_the_users) {
  const std::string module = "/home/ana/tensorflow/venv/lib/python3.12/site-packages/ops/ops.so";
  EXPECT_EQ(id_of({context_on(1, {own(4)}, {module}), context_on(0, {own(4)}, {module})}),
            "stray.unexplained");
}

TEST(import, not_a_function_of_a_library_that_is_called_later_nor_the_users_own_module) {
  const PythonFrame machinery =
      frame("<frozen importlib._bootstrap>", 488, "_call_with_frames_removed");
  const PythonFrame module = frame(package("fastops.py"), 3, "<module>");
  EXPECT_EQ(id_of(context_on(0, {module, machinery, own()}, {kC10})), "stray.import");
  EXPECT_EQ(id_of(context_on(0, {frame(package("fastops.py"), 3, "<module>"), own()}, {kC10})),
            "stray.default-device");
  EXPECT_EQ(id_of(context_on(0, {frame("/home/ana/job/ops.py", 3, "<module>"), machinery, own()},
                             {kC10})),
            "stray.default-device");
}

TEST(spawned_module, not_the_childs_own_function) {
  const PythonFrame main = frame("/usr/lib/python3.12/multiprocessing/spawn.py", 131, "_main");
  const PythonFrame fixup =
      frame("/usr/lib/python3.12/multiprocessing/spawn.py", 297, "_fixup_main_from_path");
  EXPECT_EQ(id_of(context_on(0, {own(), fixup, main}, {kC10})), "stray.spawned-module");
  EXPECT_EQ(id_of(context_on(0, {own(5, "work"), main}, {kC10})), "stray.default-device");
}

TEST(shared_tensor, an_unpickled_tensor_is_no_checkpoint) {
  const std::string file = package("torch/serialization.py");
  EXPECT_EQ(
      id_of(context_on(0,
                       {frame(file, 734, "default_restore_location"), frame(file, 1603, "load"),
                        frame(package("torch/storage.py"), 535, "_load_from_bytes"), own()},
                       {kC10})),
      "stray.shared-tensor");
}

TEST(graphics_client, by_the_call) {
  Context context = context_on(0, {}, {"/home/ana/job/viewer"});
  context.call = "cuGLCtxCreate_v2";
  EXPECT_EQ(id_of(context), "stray.graphics-client");
}

// The process of a context that began without the variable, and has it by now.
Context changed(const std::string& now) {
  Context context = context_on(0, {own(4)}, {kC10});
  context.visible_devices_changed = true;
  context.visible_devices = now;
  return context;
}

TEST(late_env, only_a_value_that_would_have_hidden_the_gpu) {
  for (const char* hides : {"1", "", "-1", "GPU-1", "1,1", "7,0", "GPU-1,0"})
    EXPECT_EQ(id_of(changed(hides)), "stray.late-env") << hides;
  for (const char* shows : {"0", "1,0", "GPU-0", "gpu 1", "0x1"})
    EXPECT_EQ(id_of(changed(shows)), "stray.default-device") << shows;
}

TEST(late_env, without_an_expectation_it_is_a_warning) {
  JobRun run = run_for_gpu_1();
  run.expectation.kind = snapshot::Expectation::Kind::none;
  run.contexts = {changed("1")};
  const Verdict verdict = judge(run);
  ASSERT_EQ(verdict.findings.size(), 1U);
  EXPECT_EQ(verdict.findings[0].severity, Severity::warning);
  EXPECT_FALSE(run.contexts[0].stray);
  EXPECT_EQ(stray_count(verdict), 0U)
      << "--strict must not fail a job of which nothing is expected";
  run.expectation.kind = snapshot::Expectation::Kind::gpus;
  EXPECT_EQ(stray_count(judge(run)), 1U);
}

std::vector<std::string> evidence_of(Context context, const std::string& source) {
  JobRun run = run_for_gpu_1();
  run.inits[0].culprit = own(2);
  run.contexts = {std::move(context)};
  run.sources[kTrain] = source;
  return judge(run).findings.at(0).evidence;
}

TEST(late_env, several_lines_are_all_candidates_and_those_that_cannot_be_are_not) {
  const auto evidence = evidence_of(changed("1"),
                                    "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"  // before
                                    "torch.cuda.is_available()\n"
                                    "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n"
                                    "x = y.cuda()\n"
                                    "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\n"  // another value
                                    "def f():\n"
                                    "  os.environ['CUDA_VISIBLE_DEVICES'] = g\n");
  std::vector<std::string> places;
  for (const std::string& line : evidence)
    if (line.starts_with("set, perhaps here")) places.push_back(line);
  ASSERT_EQ(places.size(), 2U);
  EXPECT_NE(places[0].find(kTrain + ":3:"), std::string::npos);
  EXPECT_NE(places[1].find(kTrain + ":7:"), std::string::npos);
}

TEST(late_env, by_the_text_alone_only_in_the_code_that_started_cuda_and_below_it) {
  JobRun run = run_for_gpu_1();
  run.inits[0].culprit = own(2);
  const Context context = context_on(0, {own(2)}, {package("jaxlib/xla.so")});
  const std::string set = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\n";
  EXPECT_EQ(id_of({context}, "import jax\njax.devices()\n" + set, run), "stray.late-env");
  EXPECT_EQ(id_of({context}, set + "jax.devices()\n", run), "stray.unexplained");
  EXPECT_EQ(id_of({context}, "import jax\njax.devices()\ndef f():\n  " + set, run),
            "stray.unexplained");
  EXPECT_EQ(id_of({context}, "import jax\njax.devices()\nif late:\n  " + set, run),
            "stray.unexplained")
      << "a branch that may not be taken";
  EXPECT_EQ(id_of({context}, "if a:\n  jax.devices()\nelse:\n  " + set, run), "stray.unexplained")
      << "the other branch";
  EXPECT_EQ(id_of({context}, "import jax\njax.devices()\n" + set + set, run), "stray.unexplained")
      << "which of two is not known";
}

TEST(late_env, what_the_call_did_comes_before_what_the_text_suggests) {
  JobRun run = run_for_gpu_1();
  run.inits[0].culprit = own(1);
  EXPECT_EQ(id_of({context_on(0, {frame(kTorchCuda, 1161, "synchronize"), own(1)}, {kC10})},
                  "torch.cuda.synchronize()\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n", run),
            "stray.sync-default-device");
}

TEST(lost_variable, against_what_the_job_was_given_and_against_a_parent_that_had_it_before) {
  JobRun run = run_for_gpu_1();
  run.confinement.requested = true;
  run.confinement.visible_devices = "GPU-1";
  EXPECT_EQ(id_of({context_on(0, {own()}, {kC10})}, {}, run), "stray.lost-variable");

  run = run_for_gpu_1();
  Init parent;
  parent.pid = 5;
  parent.visible_devices = "1";
  run.inits[0].parent_pid = 5;
  run.inits[0].time_s = 0.5;
  run.inits.push_back(parent);
  EXPECT_EQ(id_of({context_on(0, {own()}, {kC10})}, {}, run), "stray.lost-variable");
  run.inits[1].time_s = 0.9;
  EXPECT_EQ(id_of({context_on(0, {own()}, {kC10})}, {}, run), "stray.default-device")
      << "the parent may have set it after it had started the child";
  run.inits[1].time_s = 0;
  run.inits[1].visible_devices = "0";
  EXPECT_EQ(id_of({context_on(0, {own()}, {kC10})}, {}, run), "stray.default-device")
      << "with the parent's value the GPU is visible too";
}

// What the text of a line told is not told without it; what is said then is not wrong.
TEST(recorded, without_the_sources_nothing_wrong_is_said) {
  const std::map<std::string, std::string> general = {
      {"jax_env_late", "stray.framework-opens-all"},
      {"torch_child_without_variable", "stray.default-device"}};
  for (const std::string& name : recorded_run_names()) {
    RecordedRun recorded = recorded_run(name);
    recorded.run.sources.clear();
    for (const Finding& finding : judge(recorded.run).findings) {
      const bool wanted =
          std::ranges::find(recorded.findings, finding.id) != recorded.findings.end();
      const auto also = general.find(name);
      EXPECT_TRUE(wanted || finding.id == "stray.unexplained" ||
                  (also != general.end() && also->second == finding.id))
          << name << ": " << finding.id;
    }
  }
}

}  // namespace
}  // namespace corral::rules
