// SPDX-License-Identifier: Apache-2.0
// trace_dump [--count] FOLDER|FILE…: traces as JSON, for the tests of the shim; with --count only
// how many events of each kind there are.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trace/reader.h"

namespace {

using corral::trace::Event;
using corral::trace::ProcessTrace;
using nlohmann::json;

json device(const corral::trace::Device& device) {
  json out = {{"uuid", device.uuid_text()}, {"pci", device.pci}, {"ordinal", nullptr}};
  if (device.ordinal) out["ordinal"] = *device.ordinal;
  return out;
}

json frames(const std::vector<corral::trace::PythonFrame>& from) {
  json out = json::array();
  for (const auto& frame : from) {
    out.push_back({frame.file, frame.line ? json(*frame.line) : json(), frame.function});
  }
  return out;
}

json event(const ProcessTrace& trace, const Event& event) {
  const json python = frames(event.stack.python);
  json native = json::array();
  for (const auto& frame : event.stack.native) {
    const auto module = frame.module ? trace.modules.find(*frame.module) : trace.modules.end();
    native.push_back(
        {module == trace.modules.end() ? json() : json(module->second.path), frame.offset});
  }
  json variables = json::object();
  for (const auto& [name, value] : event.variables) variables[name] = value ? json(*value) : json();
  return {{"tid", event.tid},
          {"time", event.monotonic_ns},
          {"function", event.function},
          {"thread", event.thread_name},
          {"variables", variables},
          {"cwd", event.cwd},
          {"python", python},
          {"omitted", event.stack.python_omitted},
          {"source", event.stack.python_source},
          {"main_thread", frames(event.stack.main_thread)},
          {"main_thread_source", event.stack.main_thread_source},
          {"native", native},
          {"result", event.result}};
}

json dump(const ProcessTrace& trace) {
  json out = {{"pid", trace.pid},
              {"ppid", trace.parent_pid},
              {"start", trace.start_time_ticks.value_or(0)},
              {"pid_namespace", trace.pid_namespace.value_or(0)},
              {"exe", trace.exe},
              {"argv", trace.argv},
              {"cwd", trace.cwd},
              {"cut", trace.cut},
              {"damage", trace.damage ? json(trace.damage->what) : json()},
              {"exited", trace.exit_monotonic_ns.has_value()},
              {"lost", trace.records_lost()},
              {"unknown", trace.unknown_records + trace.unknown_fields},
              {"inits", json::array()},
              {"contexts", json::array()},
              {"allocations", json::array()},
              {"shortages", json::array()},
              {"counters", nullptr}};
  for (const auto& init : trace.inits) out["inits"].push_back(event(trace, init));
  for (const auto& context : trace.contexts) {
    json one = event(trace, context);
    one.update({{"ended", context.ended},
                {"device", device(context.device)},
                {"context", context.context},
                {"primary", context.primary},
                {"found", context.found},
                {"green", context.green},
                {"view", context.view}});
    out["contexts"].push_back(one);
  }
  for (const auto& allocation : trace.allocations) {
    json one = event(trace, allocation);
    one.update({{"device", device(allocation.device)},
                {"bytes", allocation.bytes},
                {"first", allocation.first},
                {"large", allocation.large},
                {"shared", allocation.shared},
                {"managed", allocation.managed},
                {"graph", allocation.graph}});
    out["allocations"].push_back(one);
  }
  for (const auto& shortage : trace.shortages) {
    json one = event(trace, shortage);
    one.update({{"device", device(shortage.device)},
                {"over", shortage.over},
                {"bytes", shortage.bytes},
                {"held", shortage.held_bytes},
                {"given_back", shortage.given_back_bytes},
                {"failures", shortage.failures}});
    out["shortages"].push_back(one);
  }
  if (trace.counters) {
    json devices = json::array();
    for (const auto& counter : trace.counters->devices) {
      devices.push_back({{"device", device(counter.device)},
                         {"now", counter.bytes_now},
                         {"peak", counter.bytes_peak},
                         {"allocations", counter.allocations},
                         {"frees", counter.frees},
                         {"untracked", counter.untracked},
                         {"shared", counter.shared},
                         {"managed", counter.managed_now},
                         {"graph_nodes", counter.graph_nodes},
                         {"out_of_memory", counter.out_of_memory},
                         {"shortages_over", counter.shortages_over}});
    }
    out["counters"] = {{"devices", devices},
                       {"unknown_device", trace.counters->unknown_device},
                       {"foreign_frees", trace.counters->foreign_frees}};
  }
  return out;
}

// For traces that are too large to be shown.
json count_of(const ProcessTrace& trace) {
  return {{"pid", trace.pid},
          {"cut", trace.cut},
          {"damage", trace.damage ? json(trace.damage->what) : json()},
          {"exited", trace.exit_monotonic_ns.has_value()},
          {"inits", trace.inits.size()},
          {"contexts", trace.contexts.size()},
          {"allocations", trace.allocations.size()},
          {"lost", trace.records_lost()},
          {"lost_by_reason", trace.lost_by_reason}};
}

}  // namespace

int main(int count, char** arguments) {
  json out = {{"traces", json::array()}, {"errors", json::array()}};
  const bool counts = count > 1 && std::string_view(arguments[1]) == "--count";
  const auto show = [&](const ProcessTrace& trace) {
    out["traces"].push_back(counts ? count_of(trace) : dump(trace));
  };
  for (int i = counts ? 2 : 1; i < count; ++i) {
    if (std::filesystem::is_directory(arguments[i])) {
      const auto folder = corral::trace::read_trace_folder(arguments[i]);
      if (!folder) {
        out["errors"].push_back(folder.error().what);
        continue;
      }
      for (const auto& trace : folder->traces) show(trace);
      for (const auto& error : folder->errors) out["errors"].push_back(error.what);
    } else if (const auto trace = corral::trace::read_trace(arguments[i])) {
      show(*trace);
    } else {
      out["errors"].push_back(trace.error().what);
    }
  }
  std::puts(out.dump(1, ' ', false, json::error_handler_t::replace).c_str());
  return 0;
}
