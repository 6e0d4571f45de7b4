// SPDX-License-Identifier: Apache-2.0
// Every length is checked against what is left before anything is read: files come from processes
// that died at any moment, and from anybody's disk.
#include "trace/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/file.h"
#include "trace/regular_file.h"

namespace corral::trace {
namespace {

constexpr std::size_t kTraceLimitBytes = 512U << 20;
constexpr std::size_t kCountersLimitBytes = 1U << 20;

Result<std::string> read_regular_file(const std::string& path, std::size_t limit_bytes) {
  CORRAL_TRY(const RegularFile file, open_regular_file(path));
  if (file.bytes > limit_bytes)
    return fail(
        fmt::format("{}: {} bytes, and at most {} are read", path, file.bytes, limit_bytes));
  auto bytes = read_file(fmt::format("/proc/self/fd/{}", file.fd.get()), limit_bytes);
  if (!bytes) return fail(path + ": " + bytes.error().what, bytes.error().hint, bytes.error().sys);
  return bytes;
}

// The beginning of `bytes` as a T; what is missing at its end is zero.
template <class T>
T read_as(std::span<const char> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

std::string text_of(std::span<const char> bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<std::string> split_words(std::string_view words) {
  std::vector<std::string> result;
  while (!words.empty()) {
    const std::size_t end = words.find('\0');
    result.emplace_back(words.substr(0, end));
    words.remove_prefix(end == words.npos ? words.size() : end + 1);
  }
  return result;
}

Device device_of(const wire::DeviceId& id) {
  Device device;
  if (id.ordinal >= 0) device.ordinal = id.ordinal;
  if (id.flags & wire::kDeviceUuid) {
    std::copy(std::begin(id.uuid), std::end(id.uuid), device.uuid.emplace().begin());
  }
  if (id.flags & wire::kDevicePci) device.pci.assign(id.pci, strnlen(id.pci, sizeof id.pci));
  return device;
}

std::optional<std::uint64_t> known(std::uint64_t value) {
  return value == 0 ? std::nullopt : std::optional(value);
}

bool parse_python_frame(std::span<const char> data, std::vector<PythonFrame>& frames) {
  if (data.size() < sizeof(wire::PythonFrameData)) return false;
  const auto frame = read_as<wire::PythonFrameData>(data);
  const auto text = data.subspan(sizeof frame);
  if (text.size() < std::size_t{frame.file_bytes} + frame.function_bytes) return false;
  PythonFrame& result = frames.emplace_back();
  if (frame.line != 0) result.line = frame.line;
  result.file = text_of(text.first(frame.file_bytes));
  result.function = text_of(text.subspan(frame.file_bytes, frame.function_bytes));
  return true;
}

void parse_native_frames(std::span<const char> data, Stack& stack) {
  for (; data.size() >= sizeof(wire::NativeFrameData);
       data = data.subspan(sizeof(wire::NativeFrameData))) {
    const auto frame = read_as<wire::NativeFrameData>(data);
    NativeFrame& result = stack.native.emplace_back();
    if (frame.module != wire::kNoModule) result.module = frame.module;
    result.offset = frame.offset;
  }
}

void parse_variable(std::span<const char> data, Event& event) {
  const std::string_view text(data.data(), data.size());
  const std::size_t equals = text.find('=');
  auto& value = event.variables[std::string(text.substr(0, equals))];
  value = equals == text.npos ? std::nullopt : std::optional<std::string>(text.substr(equals + 1));
}

// What the fields of a record say; `path` only stands in modules.
struct Fields {
  Event event;
  std::string path;
  std::uint64_t unknown = 0;
};

constexpr const char* kLongFrame = "a Python frame longer than its field";

// Null, or what is wrong.
const char* parse_field(wire::FieldHeader header, std::span<const char> data, Fields& fields) {
  Event& event = fields.event;
  switch (header.tag) {
    case wire::kFunction:
      event.function = text_of(data);
      return nullptr;
    case wire::kThreadName:
      event.thread_name = text_of(data);
      return nullptr;
    case wire::kVariable:
      parse_variable(data, event);
      return nullptr;
    case wire::kWorkingFolder:
      event.cwd = text_of(data);
      return nullptr;
    case wire::kPythonSource:
      event.stack.python_source = text_of(data);
      return nullptr;
    case wire::kPythonFrame:
      return parse_python_frame(data, event.stack.python) ? nullptr : kLongFrame;
    case wire::kPythonOmitted:
      event.stack.python_omitted = read_as<std::uint64_t>(data);
      return nullptr;
    case wire::kMainThreadSource:
      event.stack.main_thread_source = text_of(data);
      return nullptr;
    case wire::kMainThreadFrame:
      return parse_python_frame(data, event.stack.main_thread) ? nullptr : kLongFrame;
    case wire::kMainThreadOmitted:
      event.stack.main_thread_omitted = read_as<std::uint64_t>(data);
      return nullptr;
    case wire::kNativeFrames:
      parse_native_frames(data, event.stack);
      return nullptr;
    case wire::kPath:
      fields.path = text_of(data);
      return nullptr;
    default:
      ++fields.unknown;
      return nullptr;
  }
}

const char* parse_fields(std::span<const char> rest, Fields& fields) {
  while (!rest.empty()) {
    if (rest.size() < sizeof(wire::FieldHeader)) return "a field header longer than its record";
    const auto header = read_as<wire::FieldHeader>(rest);
    rest = rest.subspan(sizeof header);
    if (header.bytes > rest.size()) return "a field longer than its record";
    const std::size_t whole = wire::align_up(header.bytes);
    if (const char* wrong = parse_field(header, rest.first(header.bytes), fields)) return wrong;
    rest = rest.subspan(std::min(whole, rest.size()));
  }
  return nullptr;
}

void add_context(ProcessTrace& trace, bool ended, const wire::ContextPayload& payload,
                 Event event) {
  event.result = payload.result;
  ContextEvent& context = trace.contexts.emplace_back();
  static_cast<Event&>(context) = std::move(event);
  context.ended = ended;
  context.device = device_of(payload.device);
  context.context = payload.context;
  context.primary = payload.flags & wire::kContextPrimary;
  context.found = payload.flags & wire::kContextFound;
  context.green = payload.flags & wire::kContextGreen;
  context.view = payload.flags & wire::kContextView;
  context.denied = payload.flags & wire::kContextDenied;
}

void add_allocation(ProcessTrace& trace, const wire::AllocationPayload& payload, Event event) {
  event.result = payload.result;
  AllocationEvent& allocation = trace.allocations.emplace_back();
  static_cast<Event&>(allocation) = std::move(event);
  allocation.device = device_of(payload.device);
  allocation.bytes = payload.bytes;
  allocation.first = payload.flags & wire::kAllocationFirst;
  allocation.large = payload.flags & wire::kAllocationLarge;
  allocation.shared = payload.flags & wire::kAllocationShared;
  allocation.managed = payload.flags & wire::kAllocationManaged;
  allocation.graph = payload.flags & wire::kAllocationGraph;
}

void add_shortage(ProcessTrace& trace, const wire::ShortagePayload& payload, Event event) {
  event.result = payload.result;
  ShortageEvent& shortage = trace.shortages.emplace_back();
  static_cast<Event&>(shortage) = std::move(event);
  shortage.device = device_of(payload.device);
  shortage.over = payload.flags & wire::kShortageOver;
  shortage.bytes = payload.bytes;
  shortage.held_bytes = payload.held;
  shortage.given_back_bytes = payload.given_back;
  shortage.failures = payload.failures;
}

void add_record(ProcessTrace& trace, const wire::RecordHeader& header,
                std::span<const char> payload, Fields fields) {
  fields.event.tid = header.tid;
  fields.event.monotonic_ns = header.monotonic_ns;
  trace.unknown_fields += fields.unknown;
  switch (header.kind) {
    case wire::kInit:
      fields.event.result = read_as<wire::InitPayload>(payload).result;
      trace.inits.push_back(std::move(fields.event));
      return;
    case wire::kContextMade:
    case wire::kContextEnded:
      add_context(trace, header.kind == wire::kContextEnded, read_as<wire::ContextPayload>(payload),
                  std::move(fields.event));
      return;
    case wire::kAllocation:
      add_allocation(trace, read_as<wire::AllocationPayload>(payload), std::move(fields.event));
      return;
    case wire::kNoSuchDevice: {
      const auto none = read_as<wire::NoSuchDevicePayload>(payload);
      fields.event.result = none.result;
      NoSuchDeviceEvent& event = trace.no_such_devices.emplace_back();
      static_cast<Event&>(event) = std::move(fields.event);
      event.ordinal = none.ordinal;
      return;
    }
    case wire::kShortage:
      add_shortage(trace, read_as<wire::ShortagePayload>(payload), std::move(fields.event));
      return;
    case wire::kModule: {
      const auto module = read_as<wire::ModulePayload>(payload);
      trace.modules[module.id] = {.path = std::move(fields.path), .load_base = module.load_base};
      return;
    }
    case wire::kLost: {
      const auto lost = read_as<wire::LostPayload>(payload);
      std::copy(std::begin(lost.by_reason), std::end(lost.by_reason), trace.lost_by_reason.begin());
      return;
    }
    case wire::kExit:
      trace.exit_monotonic_ns = header.monotonic_ns;
      return;
    default:
      ++trace.unknown_records;
  }
}

// Null, or what cannot be.
const char* check_record(const wire::RecordHeader& header) {
  if (header.mark != wire::kRecordMark) return "no record begins here";
  if (header.size < sizeof header || header.size % wire::kAlignment != 0 ||
      header.size > wire::kMaxRecordBytes) {
    return "a record of impossible size";
  }
  if (header.payload_bytes % wire::kAlignment != 0 ||
      header.payload_bytes > header.size - sizeof header) {
    return "a payload longer than its record";
  }
  return nullptr;
}

void parse_records(std::span<const char> bytes, std::size_t offset, const std::string& name,
                   ProcessTrace& trace) {
  const auto damaged = [&](const char* what) {
    trace.damage = Error{.what = fmt::format("{}: damaged at byte {}: {}", name, offset, what),
                         .hint = "what came before is used"};
  };
  while (offset < bytes.size()) {
    const auto rest = bytes.subspan(offset);
    if (rest.size() < sizeof(wire::RecordHeader)) {
      trace.cut = true;
      return;
    }
    const auto header = read_as<wire::RecordHeader>(rest);
    if (const char* wrong = check_record(header)) return damaged(wrong);
    if (header.size > rest.size()) {
      trace.cut = true;
      return;
    }
    const auto body = rest.subspan(sizeof header, header.size - sizeof header);
    Fields fields;
    if (const char* wrong = parse_fields(body.subspan(header.payload_bytes), fields)) {
      return damaged(wrong);
    }
    add_record(trace, header, body.first(header.payload_bytes), std::move(fields));
    offset += header.size;
  }
}

// The errors common to both kinds of file: too short, no magic, a newer version.
Result<void> check_beginning(std::span<const char> bytes, const char (&magic)[8],
                             std::size_t smallest, const std::string& name, const char* kind) {
  if (bytes.size() < sizeof magic + sizeof(std::uint32_t) ||
      std::memcmp(bytes.data(), magic, sizeof magic) != 0) {
    return fail(fmt::format("{}: not a {} file: it does not begin with {}", name, kind,
                            std::string_view(magic, sizeof magic)));
  }
  const auto version = read_as<std::uint32_t>(bytes.subspan(sizeof magic));
  if (version == 0 || version > wire::kVersion) {
    return fail(fmt::format("{}: {} format version {}, and this corral reads up to version {}",
                            name, kind, version, wire::kVersion),
                "read it with the corral that wrote it, or a newer one");
  }
  if (bytes.size() < smallest) {
    return fail(fmt::format("{}: the header is cut: {} bytes of at least {}", name, bytes.size(),
                            smallest));
  }
  return {};
}

}  // namespace

std::string Device::uuid_text() const {
  if (!uuid) return {};
  std::string text;
  for (std::size_t i = 0; i < uuid->size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", (*uuid)[i]);
  }
  return text;
}

std::uint64_t ProcessTrace::records_lost() const {
  std::uint64_t lost = 0;
  for (std::size_t reason = 0; reason < lost_by_reason.size(); ++reason) {
    lost += std::max(lost_by_reason[reason], counters ? counters->lost_by_reason[reason] : 0);
  }
  return lost;
}

Result<ProcessTrace> parse_trace(std::span<const char> bytes, const std::string& name) {
  CORRAL_CHECK(check_beginning(bytes, wire::kTraceMagic, sizeof(wire::FileHeader), name, "trace"));
  const auto header = read_as<wire::FileHeader>(bytes);
  const std::size_t strings = std::size_t{header.exe_bytes} + header.argv_bytes + header.cwd_bytes;
  if (header.header_bytes < sizeof header + strings || header.header_bytes > bytes.size() ||
      header.header_bytes % wire::kAlignment != 0) {
    return fail(
        fmt::format("{}: impossible header size {} (the file has {} bytes, the header at "
                    "least {})",
                    name, header.header_bytes, bytes.size(), sizeof header + strings));
  }
  ProcessTrace trace;
  trace.version = header.version;
  trace.pid = header.pid;
  trace.parent_pid = header.parent_pid;
  trace.start_time_ticks = known(header.start_time_ticks);
  trace.pid_namespace = known(header.pid_namespace);
  trace.ticks_per_second = header.ticks_per_second;
  trace.opened_monotonic_ns = header.opened_monotonic_ns;
  trace.opened_realtime_ns = header.opened_realtime_ns;
  const char* at = bytes.data() + sizeof header;
  trace.exe.assign(at, header.exe_bytes);
  at += header.exe_bytes;
  trace.argv = split_words({at, header.argv_bytes});
  trace.argv_cut = header.flags & wire::kHeaderArgvCut;
  at += header.argv_bytes;
  trace.cwd.assign(at, header.cwd_bytes);
  parse_records(bytes, header.header_bytes, name, trace);
  return trace;
}

Result<Counters> parse_counters(std::span<const char> bytes, const std::string& name) {
  constexpr std::size_t kHeaderBytes = offsetof(wire::CountersFile, devices);
  CORRAL_CHECK(check_beginning(bytes, wire::kCountersMagic, kHeaderBytes, name, "counters"));
  const auto header = read_as<wire::CountersFile>(bytes.first(kHeaderBytes));
  if (header.header_bytes < kHeaderBytes || header.device_bytes < sizeof(std::uint64_t) ||
      header.header_bytes > bytes.size()) {
    return fail(fmt::format("{}: impossible sizes: header {} bytes, device {} bytes", name,
                            header.header_bytes, header.device_bytes));
  }
  Counters counters;
  counters.pid = header.pid;
  counters.start_time_ticks = header.start_time_ticks;
  std::copy(std::begin(header.lost_by_reason), std::end(header.lost_by_reason),
            counters.lost_by_reason.begin());
  counters.unknown_device = header.unknown_device;
  counters.foreign_frees = header.foreign_frees;
  auto rest = bytes.subspan(header.header_bytes);
  for (std::uint32_t i = 0; i < header.device_count && rest.size() >= header.device_bytes; ++i) {
    const auto slot = read_as<wire::DeviceCounters>(rest.first(header.device_bytes));
    rest = rest.subspan(header.device_bytes);
    if (slot.device.flags == 0) continue;
    counters.devices.push_back({.device = device_of(slot.device),
                                .bytes_now = slot.bytes_now,
                                .bytes_peak = slot.bytes_peak,
                                .allocations = slot.allocations,
                                .frees = slot.frees,
                                .untracked = slot.untracked,
                                .shared = slot.shared,
                                .managed_now = slot.managed_now,
                                .graph_nodes = slot.graph_nodes,
                                .out_of_memory = slot.out_of_memory,
                                .shortages_over = slot.shortages_over});
  }
  return counters;
}

Result<ProcessTrace> read_trace(const std::string& path) {
  CORRAL_TRY(const std::string bytes, read_regular_file(path, kTraceLimitBytes));
  CORRAL_TRY(ProcessTrace trace, parse_trace(bytes, path));
  const std::string_view suffix = ".trace";
  if (path.ends_with(suffix)) {
    const std::string beside = path.substr(0, path.size() - suffix.size()) + ".counters";
    if (const auto text = read_regular_file(beside, kCountersLimitBytes)) {
      if (auto counters = parse_counters(*text, beside)) trace.counters = std::move(*counters);
    }
  }
  return trace;
}

Result<FolderTraces> read_trace_folder(const std::string& folder) {
  CORRAL_TRY(const std::vector<std::string> names, list_folder(folder));
  FolderTraces result;
  for (const std::string& name : names) {
    if (!name.ends_with(".trace")) continue;
    if (auto trace = read_trace(folder + "/" + name)) {
      result.traces.push_back(std::move(*trace));
    } else {
      result.errors.push_back(std::move(trace).error());
    }
  }
  std::ranges::stable_sort(result.traces, {}, &ProcessTrace::opened_monotonic_ns);
  return result;
}

}  // namespace corral::trace
