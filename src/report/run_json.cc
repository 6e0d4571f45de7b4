// SPDX-License-Identifier: Apache-2.0
#include "report/run_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "report/run_summary.h"

namespace corral::report {
namespace {

using Json = nlohmann::ordered_json;
using snapshot::Run;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Three decimals: what a clock or a power reading is good for.
Json rounded(double value) { return std::round(value * 1000) / 1000; }
Json rounded(const std::optional<double>& value) { return value ? rounded(*value) : Json(nullptr); }

Json frame(const snapshot::PythonFrame& frame) {
  return {{"file", frame.file}, {"line", or_null(frame.line)}, {"function", frame.function}};
}

Json frames(const std::vector<snapshot::PythonFrame>& from) {
  Json list = Json::array();
  for (const snapshot::PythonFrame& f : from) list.push_back(frame(f));
  return list;
}

Json native(const snapshot::Stack& stack) {
  Json frames = Json::array();
  for (const snapshot::NativeFrame& f : stack.native)
    frames.push_back({{"module", f.module},
                      {"function", f.function},
                      {"offset", fmt::format("{:#x}", f.offset)}});
  return frames;
}

Json culprit(const std::optional<snapshot::PythonFrame>& culprit) {
  return culprit ? frame(*culprit) : Json(nullptr);
}

// A variable that was removed is null.
Json variables(const std::map<std::string, std::optional<std::string>>& from) {
  Json object = Json::object();
  for (const auto& [name, value] : from) object[name] = or_null(value);
  return object;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json allowed(const Run& run) {
  Json list = Json::array();
  for (const snapshot::GpuRun& gpu : run.gpus)
    if (gpu.allowed)
      list.push_back(
          {{"index", gpu.gpu.index}, {"uuid", gpu.gpu.uuid}, {"pci", gpu.gpu.pci.text()}});
  return list;
}

Json processes(const snapshot::GpuRun& gpu) {
  Json list = Json::array();
  for (const snapshot::GpuProcess& process : gpu.processes)
    list.push_back({{"pid", process.pid},
                    {"process", process.command},
                    {"of_job", process.of_job},
                    {"memory_bytes", or_null(process.memory_bytes)},
                    {"allocated_peak_bytes", or_null(process.allocated_peak_bytes)},
                    {"unexplained_peak_bytes", or_null(unexplained_peak_bytes(process))}});
  return list;
}

Json gpus(const Run& run) {
  Json list = Json::array();
  for (const snapshot::GpuRun& gpu : run.gpus) {
    const GpuNumbers n = numbers(run, gpu);
    const JobMemory memory = job_memory(run, gpu);
    list.push_back({{"index", gpu.gpu.index},
                    {"uuid", gpu.gpu.uuid},
                    {"pci", gpu.gpu.pci.text()},
                    {"name", gpu.gpu.name},
                    {"allowed", gpu.allowed},
                    {"touched", or_null(touched(run, gpu))},
                    {"contexts", or_null(gpu.contexts)},
                    {"job_memory_peak_bytes", or_null(gpu.job_memory_peak_bytes)},
                    {"allocated_peak_bytes", or_null(memory.allocated_peak_bytes)},
                    {"unexplained_peak_bytes", or_null(memory.unexplained_peak_bytes)},
                    {"allocations_refused", or_null(gpu.allocations_refused)},
                    {"memory_min_bytes", or_null(n.memory_min_bytes)},
                    {"memory_max_bytes", or_null(n.memory_max_bytes)},
                    {"power_mean_w", rounded(n.power_mean_w)},
                    {"power_before_w", rounded(n.power_before_w)},
                    {"sm_clock_mean_mhz", rounded(n.sm_clock_mean_mhz)},
                    {"state", text_or_null(gpu.state)},
                    {"processes", processes(gpu)}});
  }
  return list;
}

Json contexts(const Run& run) {
  Json list = Json::array();
  for (const snapshot::Context& context : run.contexts) {
    list.push_back({{"gpu", or_null(context.gpu)},
                    {"gpu_uuid", context.gpu_uuid},
                    {"ordinal", or_null(context.ordinal)},
                    {"pid", context.pid},
                    {"process", context.process},
                    {"rank", or_null(context.rank)},
                    {"tid", context.tid == 0 ? Json(nullptr) : Json(context.tid)},
                    {"thread", context.thread},
                    {"time_s", rounded(context.time_s)},
                    {"ended_s", rounded(context.ended_s)},
                    {"call", context.call},
                    {"found", context.found},
                    {"denied", context.denied},
                    {"stray", context.stray},
                    {"finding", text_or_null(context.finding)},
                    {"cwd", text_or_null(context.cwd)},
                    {"changed_variables", variables(context.changed_variables)},
                    {"culprit", culprit(context.culprit)},
                    {"python", frames(context.stack.python)},
                    {"python_omitted", context.stack.python_omitted},
                    {"python_source", context.stack.python_source},
                    {"main_thread", frames(context.stack.main_thread)},
                    {"main_thread_omitted", context.stack.main_thread_omitted},
                    {"main_thread_source", text_or_null(context.stack.main_thread_source)},
                    {"native", native(context.stack)}});
  }
  return list;
}

Json inits(const Run& run) {
  Json list = Json::array();
  for (const snapshot::Init& init : run.inits)
    list.push_back({{"pid", init.pid},
                    {"parent_pid", init.parent_pid == 0 ? Json(nullptr) : Json(init.parent_pid)},
                    {"process", init.process},
                    {"argv", init.argv},
                    {"cwd", text_or_null(init.cwd)},
                    {"time_s", rounded(init.time_s)},
                    {"result", init.result},
                    {"visible_devices", or_null(init.visible_devices)},
                    {"device_order", or_null(init.device_order)},
                    {"rank_variables", init.rank_variables},
                    {"culprit", culprit(init.culprit)}});
  return list;
}

Json no_such_devices(const Run& run) {
  Json list = Json::array();
  for (const snapshot::NoSuchDevice& asked : run.no_such_devices)
    list.push_back({{"pid", asked.pid},
                    {"process", asked.process},
                    {"time_s", rounded(asked.time_s)},
                    {"call", asked.call},
                    {"ordinal", asked.ordinal},
                    {"culprit", culprit(asked.culprit)}});
  return list;
}

Json shortages(const Run& run) {
  Json list = Json::array();
  for (const snapshot::Shortage& shortage : run.shortages)
    list.push_back({{"gpu", or_null(shortage.gpu)},
                    {"pid", shortage.pid},
                    {"process", shortage.process},
                    {"time_s", rounded(shortage.time_s)},
                    {"call", shortage.call},
                    {"bytes", shortage.bytes},
                    {"held_bytes", shortage.held_bytes},
                    {"failures", shortage.failures},
                    {"given_back_bytes", or_null(shortage.given_back_bytes)},
                    {"culprit", culprit(shortage.culprit)}});
  return list;
}

Json findings(const rules::Verdict& verdict) {
  Json list = Json::array();
  for (const rules::Finding& finding : verdict.findings)
    list.push_back({{"id", finding.id},
                    {"severity", rules::name(finding.severity)},
                    {"gpu", or_null(finding.gpu)},
                    {"pid", or_null(finding.pid)},
                    {"title", finding.title},
                    {"evidence", finding.evidence},
                    {"cause", finding.cause},
                    {"verify", finding.verify},
                    {"fix", finding.fix}});
  return list;
}

Json not_checked(const rules::Verdict& verdict) {
  Json list = Json::array();
  for (const rules::NotChecked& rule : verdict.not_checked)
    list.push_back({{"id", rule.id}, {"why", rule.why}});
  return list;
}

Json coverage(const Run& run) {
  Json unobserved = Json::array();
  for (const snapshot::Unobserved& process : run.coverage.unobserved)
    unobserved.push_back(
        {{"pid", process.pid}, {"process", process.process}, {"why", process.why}});
  return {{"processes", run.coverage.processes},
          {"observed", run.coverage.observed},
          {"unobserved", unobserved},
          {"records_lost", run.coverage.records_lost}};
}

Json orphans(const Run& run) {
  Json list = Json::array();
  for (const snapshot::Orphan& orphan : run.orphans)
    list.push_back({{"pid", orphan.pid}, {"process", orphan.process}, {"gpus", orphan.gpus}});
  return list;
}

Json limits(const Run& run) {
  Json object = Json::object();
  for (const snapshot::HeldLimit& limit : run.confinement.limits) {
    Json entry;
    if (limit.name == "memory")
      entry["bytes"] = limit.amount;
    else if (limit.name == "pids")
      entry["count"] = limit.amount;
    else
      entry["list"] = limit.list;
    entry["why"] = limit.why.empty() ? Json(nullptr) : Json(limit.why);
    entry["held_by"] = limit.held_by.empty() ? Json(nullptr) : Json(limit.held_by);
    entry["job_can_change"] = limit.job_can_change;
    object[limit.name] = std::move(entry);
  }
  return object;
}

Json mps(const Run& run) {
  if (!run.mps) return nullptr;
  return {{"percent", run.mps->percent},
          {"memory_bytes", or_null(run.mps->memory_bytes)},
          {"gpu", run.mps->gpu},
          {"daemon_pid", run.mps->daemon_pid},
          {"daemon_enforced", run.mps->daemon_enforced}};
}

Json around(const Run& run) {
  Json list = Json::array();
  for (const snapshot::Around& one : run.confinement.around)
    list.push_back({{"kind", one.kind},
                    {"name", one.name},
                    {"evidence", one.evidence},
                    {"given_by", text_or_null(one.given_by)},
                    {"given_count", or_null(one.given_count)},
                    {"held", or_null(one.held)},
                    {"text", one.text}});
  return list;
}

Json advice(const Run& run) {
  Json list = Json::array();
  for (const snapshot::Advice& one : run.confinement.advice)
    list.push_back({{"what", one.what}, {"instead", text_or_null(one.instead)}});
  return list;
}

Json notes(const Run& run) {
  Json list = run.notes;
  for (const std::string& remark : run.remarks) list.push_back(remark);
  return list;
}

}  // namespace

std::string run_json(const Run& run, const rules::Verdict& verdict) {
  const snapshot::Confinement& confinement = run.confinement;
  const Json json = {
      {"schema", 1},
      {"version", run.version},
      {"simulated", run.simulated},
      {"mode", run.traced ? "trace" : "run"},
      {"command", run.command},
      {"started", rfc3339(run.started_realtime_ns)},
      {"duration_s", rounded(run.duration_s)},
      {"exit", {{"code", or_null(run.exit.code)}, {"signal", or_null(run.exit.signal)}}},
      {"enforced", confinement.enforced},
      {"layers", confinement.layers},
      {"tight", confinement.tight},
      {"as_root", confinement.as_root},
      {"refused", confinement.refused},
      {"not_covered", confinement.not_covered},
      {"open_ways", confinement.open_ways},
      {"general_limits", confinement.general_limits},
      {"limits", limits(run)},
      {"mps", mps(run)},
      {"around", around(run)},
      {"advice", advice(run)},
      {"allowed", allowed(run)},
      {"expected", text_or_null(run.expectation.text)},
      {"deny", run.expectation.denied},
      {"gpus", gpus(run)},
      {"contexts", contexts(run)},
      {"inits", inits(run)},
      {"no_such_devices", no_such_devices(run)},
      {"shortages", shortages(run)},
      {"findings", findings(verdict)},
      {"not_checked", not_checked(verdict)},
      {"orphans", orphans(run)},
      {"coverage", coverage(run)},
      {"notes", notes(run)}};
  // Process names are any bytes: what is not UTF-8 is replaced, never an exception.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace corral::report
