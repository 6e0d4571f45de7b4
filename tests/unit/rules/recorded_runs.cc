// SPDX-License-Identifier: Apache-2.0
#include "recorded_runs.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "snapshot/from_trace.h"

namespace corral::rules {
namespace {

using Json = nlohmann::json;
using snapshot::Context;
using snapshot::Init;
using snapshot::PythonFrame;

std::vector<PythonFrame> frames(const Json& list) {
  std::vector<PythonFrame> out;
  for (const Json& frame : list)
    out.push_back({.file = frame[0], .line = frame[1].get<unsigned>(), .function = frame[2]});
  return out;
}

std::optional<std::string> text(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::string>());
}

Init init(const Json& json) {
  Init out;
  out.pid = json["pid"];
  out.parent_pid = json.value("parent_pid", 0);
  out.time_s = json["time_s"];
  out.result = json["result"];
  out.visible_devices = text(json["visible_devices"]);
  out.rank_variables = json.value("rank_variables", std::map<std::string, std::string>());
  out.cwd = json["cwd"];
  out.stack.python = frames(json.value("python", Json::array()));
  out.culprit = snapshot::culprit_of(out.stack.python);
  return out;
}

Context context(const Json& json) {
  Context out;
  out.gpu = json["gpu"].get<unsigned>();
  out.ordinal = json["ordinal"].get<int>();
  out.pid = json["pid"];
  out.tid = json["tid"];
  out.thread = json["thread"];
  out.time_s = json["time_s"];
  out.call = json["call"];
  out.process = "python3 job.py";
  if (json.contains("visible_devices")) {
    out.visible_devices_changed = true;
    out.visible_devices = text(json["visible_devices"]);
  }
  out.stack.python = frames(json["python"]);
  out.stack.main_thread = frames(json.value("main_thread", Json::array()));
  for (const Json& frame : json["native"])
    out.stack.native.push_back({.module = frame[0], .function = {}, .offset = frame[1]});
  out.culprit = snapshot::culprit_of(out.stack.python);
  return out;
}

}  // namespace

RecordedRun recorded_run(const std::string& name) {
  const auto file = read_file(std::string(CORRAL_RUNS) + "/" + name + ".json");
  const Json json = Json::parse(file ? *file : "{}");
  RecordedRun out;
  snapshot::Run& run = out.run;
  for (const Json& gpu : json["gpus"]) {
    snapshot::GpuRun entry;
    entry.gpu.index = static_cast<unsigned>(run.gpus.size());
    entry.gpu.uuid = gpu["uuid"];
    entry.gpu.name = gpu["name"];
    run.gpus.push_back(std::move(entry));
  }
  run.traced = true;
  if (json["expect"] == "rank") {
    run.expectation.kind = snapshot::Expectation::Kind::rank;
  } else {
    run.expectation.kind = snapshot::Expectation::Kind::gpus;
    for (const Json& gpu : json["expect"]) run.gpus[gpu.get<std::size_t>()].allowed = true;
  }
  for (const Json& entry : json["inits"]) run.inits.push_back(init(entry));
  for (const Json& entry : json["contexts"]) {
    run.contexts.push_back(context(entry));
    run.contexts.back().gpu_uuid = run.gpus[*run.contexts.back().gpu].gpu.uuid;
  }
  run.sources = json["sources"].get<std::map<std::string, std::string>>();
  out.findings = json["wanted"]["findings"].get<std::vector<std::string>>();
  std::ranges::sort(out.findings);
  out.culprits = json["wanted"]["culprits"].get<std::vector<std::string>>();
  out.causes = json["wanted"]["causes"].get<std::vector<std::string>>();
  return out;
}

std::vector<std::string> recorded_run_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CORRAL_RUNS))
    names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

snapshot::Run run_for_gpu_1() {
  snapshot::Run run;
  run.traced = true;
  run.expectation.kind = snapshot::Expectation::Kind::gpus;
  for (unsigned i = 0; i < 2; ++i) {
    snapshot::GpuRun gpu;
    gpu.gpu.index = i;
    gpu.gpu.uuid = "GPU-" + std::to_string(i);
    gpu.gpu.name = "NVIDIA H200";
    gpu.allowed = i == 1;
    run.gpus.push_back(std::move(gpu));
  }
  Init init;
  init.pid = 10;
  init.cwd = "/home/ana/job";
  run.inits = {init};
  return run;
}

Context context_on(unsigned gpu, std::vector<PythonFrame> python,
                   std::vector<std::string> modules) {
  Context out;
  out.gpu = gpu;
  out.gpu_uuid = "GPU-" + std::to_string(gpu);
  out.ordinal = static_cast<int>(gpu);
  out.pid = 10;
  out.tid = 10;
  out.thread = "MainThread";
  out.process = "python3 train.py";
  out.call = "cuDevicePrimaryCtxRetain";
  out.stack.python = std::move(python);
  for (std::string& module : modules)
    out.stack.native.push_back({.module = std::move(module), .function = {}, .offset = 1});
  out.culprit = snapshot::culprit_of(out.stack.python);
  return out;
}

std::string package(const std::string& file) {
  return "/venv/lib/python3.12/site-packages/" + file;
}

}  // namespace corral::rules
