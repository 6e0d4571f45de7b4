// SPDX-License-Identifier: Apache-2.0
// Calling NVML through its symbols.
#include "gpu/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace corral::gpu {
namespace {

using nvml_abi::Device;

// One NVML function in its forms, newest first; a form that the library lacks is null.
template <class Signature, std::size_t kForms = 1>
struct Function {
  const char* call = "";  // the plain name, for messages
  std::array<Signature*, kForms> forms = {};

  // Asks the forms in turn until one is there and known to the driver.
  template <class... Arguments>
  NvmlReturn operator()(Arguments... arguments) const {
    for (Signature* form : forms) {
      if (form == nullptr) continue;
      const auto code = static_cast<NvmlReturn>(form(arguments...));
      if (code != NvmlReturn::function_not_found) return code;
    }
    return NvmlReturn::function_not_found;
  }
};

// The name of a symbol that is looked up, with the plain name of its function for messages.
template <class Signature, std::size_t kForms>
void find(Function<Signature, kForms>& function, const Nvml::Lookup& lookup, const char* call,
          const std::array<const char*, kForms>& symbols) {
  function.call = call;
  for (std::size_t i = 0; i < kForms; ++i)
    function.forms[i] = reinterpret_cast<Signature*>(lookup(symbols[i]));
}

template <class Signature>
void find(Function<Signature>& function, const Nvml::Lookup& lookup, const char* call) {
  find(function, lookup, call, std::array{call});
}

template <class Call>
std::unexpected<NvmlFailure> failure(const Call& function, NvmlReturn code) {
  return std::unexpected(NvmlFailure{code, function.call});
}

// A function that writes one value of type `Value` through its last argument.
template <class Value, class Call, class... Arguments>
NvmlResult<Value> ask(const Call& function, Arguments... arguments) {
  Value value{};
  const NvmlReturn code = function(arguments..., &value);
  if (code != NvmlReturn::success) return failure(function, code);
  return value;
}

// A function that writes text into a buffer.
template <unsigned kBytes, class Call, class... Arguments>
NvmlResult<std::string> ask_text(const Call& function, Arguments... arguments) {
  char text[kBytes + 1] = {};
  const NvmlReturn code = function(arguments..., text, kBytes);
  if (code != NvmlReturn::success) return failure(function, code);
  return std::string(text);
}

constexpr std::byte kCanary{0xa5};
constexpr std::size_t kEntryRoomBytes = 64;  // more than any known layout

// Whether the first `count` entries read with this size make sense: pids that Linux can give
// (2^22 at most), memory below 1 PiB or not available. `strict`: and nothing in the padding after
// the pid, where a wrong size would find other fields.
bool plausible(std::span<const std::byte> buffer, std::size_t count, std::size_t entry_bytes,
               bool strict, std::byte canary) {
  constexpr std::uint32_t kMaxPid = 1U << 22;
  constexpr std::uint64_t kMaxMemory = std::uint64_t{1} << 50;
  if (count * entry_bytes > buffer.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    nvml_abi::ProcessV1 entry;
    std::memcpy(&entry, buffer.data() + i * entry_bytes, sizeof entry);
    if (entry.pid == 0 || entry.pid > kMaxPid) return false;
    if (entry.memory > kMaxMemory && entry.memory != nvml_abi::kNotAvailable) return false;
    const auto padding = buffer.subspan(i * entry_bytes + sizeof entry.pid, 4);
    const auto is_blank = [canary](std::byte b) { return b == std::byte{0} || b == canary; };
    if (strict && !std::ranges::all_of(padding, is_blank)) return false;
  }
  return true;
}

using ListProcesses = int(Device, unsigned*, void*);

struct ListForm {
  ListProcesses* function = nullptr;
  std::size_t expected_bytes = 0;
};

std::optional<unsigned> instance_id(std::uint32_t id) {
  if (id == nvml_abi::kNoInstance) return std::nullopt;
  return id;
}

std::vector<NvmlProcess> read_entries(std::span<const std::byte> buffer, std::size_t count,
                                      std::size_t entry_bytes) {
  std::vector<NvmlProcess> out;
  for (std::size_t i = 0; i < count; ++i) {
    nvml_abi::ProcessV2 entry{0, 0, nvml_abi::kNoInstance, nvml_abi::kNoInstance};
    std::memcpy(&entry, buffer.data() + i * entry_bytes, std::min(entry_bytes, sizeof entry));
    NvmlProcess process;
    process.pid = static_cast<pid_t>(entry.pid);
    if (entry.memory != nvml_abi::kNotAvailable) process.memory_bytes = entry.memory;
    process.gpu_instance_id = instance_id(entry.gpu_instance);
    process.compute_instance_id = instance_id(entry.compute_instance);
    out.push_back(process);
  }
  return out;
}

// One form of the call, with a buffer that grows while the list does.
NvmlResult<std::vector<NvmlProcess>> list_with(const ListForm& form, const char* call,
                                               Device device) {
  constexpr int kTries = 8;
  unsigned room = 64;
  for (int i = 0; i < kTries; ++i) {
    std::vector<std::byte> buffer(room * kEntryRoomBytes, kCanary);
    unsigned count = room;
    const auto code = static_cast<NvmlReturn>(form.function(device, &count, buffer.data()));
    if (code == NvmlReturn::insufficient_size) {
      constexpr unsigned kMaxProcesses = 1U << 20;
      room = std::min(std::max(count, room) * 2, kMaxProcesses);
      continue;
    }
    if (code != NvmlReturn::success) return std::unexpected(NvmlFailure{code, call});
    if (count == 0) return std::vector<NvmlProcess>();
    if (count > room) return std::unexpected(NvmlFailure{NvmlReturn::unknown_layout, call});
    const auto bytes = process_entry_bytes(buffer, count, kCanary, form.expected_bytes);
    if (!bytes) return std::unexpected(NvmlFailure{NvmlReturn::unknown_layout, call});
    return read_entries(buffer, count, *bytes);
  }
  return std::unexpected(NvmlFailure{NvmlReturn::insufficient_size, call});
}

NvmlResult<std::vector<NvmlProcess>> list_processes(const Function<ListProcesses, 3>& function,
                                                    NvmlDevice device) {
  constexpr std::array<std::size_t, 3> kExpected = {
      sizeof(nvml_abi::ProcessV2), sizeof(nvml_abi::ProcessV2), sizeof(nvml_abi::ProcessV1)};
  NvmlFailure last{NvmlReturn::function_not_found, function.call};
  for (std::size_t i = 0; i < function.forms.size(); ++i) {
    if (function.forms[i] == nullptr) continue;
    auto list = list_with({function.forms[i], kExpected[i]}, function.call, device.handle);
    if (list) return list;
    // Another form may be known to this driver, or have the layout that it should.
    last = list.error();
    if (last.code != NvmlReturn::function_not_found && last.code != NvmlReturn::unknown_layout)
      break;
  }
  return std::unexpected(last);
}

}  // namespace

struct Nvml::Functions {
  Function<int(), 2> init;
  Function<int()> shutdown;
  Function<int(char*, unsigned)> driver_version;
  Function<int(unsigned*), 2> device_count;
  Function<int(unsigned, Device*), 2> device_by_index;
  Function<int(const char*, Device*), 2> device_by_pci;
  Function<int(Device, char*, unsigned)> uuid;
  Function<int(Device, char*, unsigned)> name;
  Function<int(Device, nvml_abi::PciInfo*), 3> pci;
  Function<int(Device, unsigned*)> minor;
  Function<int(Device, nvml_abi::MemoryV2*)> memory_v2;
  Function<int(Device, nvml_abi::MemoryV1*)> memory_v1;
  Function<int(Device, unsigned*)> power;
  Function<int(Device, unsigned*)> power_limit;
  Function<int(Device, unsigned*)> default_power_limit;
  Function<int(Device, unsigned*)> enforced_power_limit;
  Function<int(Device, unsigned*, unsigned*)> power_limit_range;
  Function<int(Device, unsigned)> set_power_limit;
  Function<int(Device, unsigned, unsigned*)> clock;
  Function<int(Device, unsigned long long*), 2> clock_event_reasons;
  Function<ListProcesses, 3> compute_processes;
  Function<ListProcesses, 3> graphics_processes;
  Function<int(Device, unsigned*, unsigned*)> mig_mode;
  Function<int(Device, unsigned*)> mig_count;
  Function<int(Device, unsigned, Device*)> mig_device;
  Function<int(Device, unsigned*)> gpu_instance_id;
  Function<int(Device, unsigned*)> compute_instance_id;
  Function<int(Device, nvml_abi::Attributes*), 2> attributes;

  explicit Functions(const Lookup& lookup) {
    find(init, lookup, "nvmlInit", {"nvmlInit_v2", "nvmlInit"});
    find(shutdown, lookup, "nvmlShutdown");
    find(driver_version, lookup, "nvmlSystemGetDriverVersion");
    find(device_count, lookup, "nvmlDeviceGetCount",
         {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    find(device_by_index, lookup, "nvmlDeviceGetHandleByIndex",
         {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    find(device_by_pci, lookup, "nvmlDeviceGetHandleByPciBusId",
         {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"});
    find(uuid, lookup, "nvmlDeviceGetUUID");
    find(name, lookup, "nvmlDeviceGetName");
    find(pci, lookup, "nvmlDeviceGetPciInfo",
         {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"});
    find(minor, lookup, "nvmlDeviceGetMinorNumber");
    find(memory_v2, lookup, "nvmlDeviceGetMemoryInfo_v2");
    find(memory_v1, lookup, "nvmlDeviceGetMemoryInfo");
    find(power, lookup, "nvmlDeviceGetPowerUsage");
    find(power_limit, lookup, "nvmlDeviceGetPowerManagementLimit");
    find(default_power_limit, lookup, "nvmlDeviceGetPowerManagementDefaultLimit");
    find(enforced_power_limit, lookup, "nvmlDeviceGetEnforcedPowerLimit");
    find(power_limit_range, lookup, "nvmlDeviceGetPowerManagementLimitConstraints");
    find(set_power_limit, lookup, "nvmlDeviceSetPowerManagementLimit");
    find(clock, lookup, "nvmlDeviceGetClockInfo");
    find(clock_event_reasons, lookup, "nvmlDeviceGetCurrentClocksEventReasons",
         {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
    find(compute_processes, lookup, "nvmlDeviceGetComputeRunningProcesses",
         {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
          "nvmlDeviceGetComputeRunningProcesses"});
    find(graphics_processes, lookup, "nvmlDeviceGetGraphicsRunningProcesses",
         {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
          "nvmlDeviceGetGraphicsRunningProcesses"});
    find(mig_mode, lookup, "nvmlDeviceGetMigMode");
    find(mig_count, lookup, "nvmlDeviceGetMaxMigDeviceCount");
    find(mig_device, lookup, "nvmlDeviceGetMigDeviceHandleByIndex");
    find(gpu_instance_id, lookup, "nvmlDeviceGetGpuInstanceId");
    find(compute_instance_id, lookup, "nvmlDeviceGetComputeInstanceId");
    find(attributes, lookup, "nvmlDeviceGetAttributes",
         {"nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"});
  }
};

std::string describe(NvmlReturn code) {
  switch (code) {
    case NvmlReturn::success:
      return "success";
    case NvmlReturn::uninitialized:
      return "not initialised";
    case NvmlReturn::invalid_argument:
      return "invalid argument";
    case NvmlReturn::not_supported:
      return "not supported";
    case NvmlReturn::no_permission:
      return "no permission";
    case NvmlReturn::not_found:
      return "not found";
    case NvmlReturn::insufficient_size:
      return "buffer too small";
    case NvmlReturn::driver_not_loaded:
      return "driver not loaded";
    case NvmlReturn::timeout:
      return "timed out";
    case NvmlReturn::library_not_found:
      return "library not found";
    case NvmlReturn::function_not_found:
      return "no such function in this driver";
    case NvmlReturn::gpu_is_lost:
      return "GPU is lost";
    case NvmlReturn::lib_rm_version_mismatch:
      return "library and kernel driver differ in version";
    case NvmlReturn::argument_version_mismatch:
      return "structure version unknown to this driver";
    case NvmlReturn::unknown:
      return "unknown error";
    case NvmlReturn::unknown_layout:
      return "answer of an unknown layout";
  }
  return fmt::format("error {}", static_cast<int>(code));
}

std::string NvmlFailure::text() const { return fmt::format("{}: {}", call, describe(code)); }

std::optional<std::size_t> process_entry_bytes(std::span<const std::byte> buffer, std::size_t count,
                                               std::byte canary, std::size_t expected) {
  const auto last = std::ranges::find_if(buffer.rbegin(), buffer.rend(),
                                         [canary](std::byte b) { return b != canary; });
  const auto written = static_cast<std::size_t>(buffer.rend() - last);
  const std::size_t rounded = (written + 7) / 8 * 8;  // padding at the end may be left unwritten
  const std::array<std::size_t, 5> sizes = {expected, 24, 16, 32, 40};
  for (const std::size_t bytes : sizes)
    if (rounded == count * bytes && plausible(buffer, count, bytes, false, canary)) return bytes;
  // A library that writes past the last entry: the expected reading, else the only one that makes
  // sense.
  std::optional<std::size_t> only;
  for (const std::size_t bytes : sizes) {
    if (rounded < count * bytes || !plausible(buffer, count, bytes, true, canary)) continue;
    if (bytes == expected) return bytes;
    if (only && *only != bytes) return std::nullopt;
    only = bytes;
  }
  return only;
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shutdown(); }

Result<std::shared_ptr<const Nvml>> Nvml::open(const std::string& path) {
  // Never closed: a call that hangs keeps running in it, and the driver does not like being
  // loaded twice.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(fmt::format("NVML: {}", ::dlerror()));
  return with([library](const char* symbol) { return ::dlsym(library, symbol); });
}

Result<std::shared_ptr<const Nvml>> Nvml::with(const Lookup& lookup) {
  auto functions = std::make_unique<Functions>(lookup);
  const NvmlReturn code = functions->init();
  if (code != NvmlReturn::success)
    return fail("NVML: " + failure(functions->init, code).error().text());
  return std::shared_ptr<const Nvml>(new Nvml(std::move(functions)));
}

NvmlResult<std::string> Nvml::driver_version() const {
  return ask_text<nvml_abi::kVersionBytes>(functions_->driver_version);
}

NvmlResult<unsigned> Nvml::device_count() const { return ask<unsigned>(functions_->device_count); }

NvmlResult<NvmlDevice> Nvml::device(unsigned index) const {
  const auto handle = ask<Device>(functions_->device_by_index, index);
  if (!handle) return std::unexpected(handle.error());
  return NvmlDevice{*handle};
}

NvmlResult<NvmlDevice> Nvml::device(const host::PciAddress& address) const {
  const std::string text = address.text();
  const auto handle = ask<Device>(functions_->device_by_pci, text.c_str());
  if (!handle) return std::unexpected(handle.error());
  return NvmlDevice{*handle};
}

NvmlResult<std::string> Nvml::uuid(NvmlDevice device) const {
  return ask_text<nvml_abi::kUuidBytes>(functions_->uuid, device.handle);
}

NvmlResult<std::string> Nvml::name(NvmlDevice device) const {
  return ask_text<nvml_abi::kNameBytes>(functions_->name, device.handle);
}

NvmlResult<host::PciAddress> Nvml::pci(NvmlDevice device) const {
  const auto info = ask<nvml_abi::PciInfo>(functions_->pci, device.handle);
  if (!info) return std::unexpected(info.error());
  if (info->bus > 0xff || info->device > 31)
    return failure(functions_->pci, NvmlReturn::unknown_layout);
  return host::PciAddress{info->domain, static_cast<std::uint8_t>(info->bus),
                          static_cast<std::uint8_t>(info->device), 0};
}

NvmlResult<unsigned> Nvml::minor(NvmlDevice device) const {
  return ask<unsigned>(functions_->minor, device.handle);
}

NvmlResult<NvmlMemory> Nvml::memory(NvmlDevice device) const {
  nvml_abi::MemoryV2 v2{};
  v2.version = nvml_abi::kMemoryV2;
  const NvmlReturn code = functions_->memory_v2(device.handle, &v2);
  if (code == NvmlReturn::success) return NvmlMemory{v2.total, v2.used, v2.reserved};
  // Only where the form is unknown: a passing failure must not mix numbers with and without the
  // reserve in one series.
  if (code != NvmlReturn::function_not_found && code != NvmlReturn::argument_version_mismatch &&
      code != NvmlReturn::invalid_argument && code != NvmlReturn::not_supported)
    return failure(functions_->memory_v2, code);
  const auto v1 = ask<nvml_abi::MemoryV1>(functions_->memory_v1, device.handle);
  if (!v1) return std::unexpected(v1.error());
  return NvmlMemory{v1->total, v1->used, std::nullopt};
}

NvmlResult<double> Nvml::power_w(NvmlDevice device) const {
  const auto mw = ask<unsigned>(functions_->power, device.handle);
  if (!mw) return std::unexpected(mw.error());
  return *mw / 1000.0;
}

NvmlResult<unsigned> Nvml::power_limit_mw(NvmlDevice device) const {
  return ask<unsigned>(functions_->power_limit, device.handle);
}

NvmlResult<unsigned> Nvml::default_power_limit_mw(NvmlDevice device) const {
  return ask<unsigned>(functions_->default_power_limit, device.handle);
}

NvmlResult<unsigned> Nvml::enforced_power_limit_mw(NvmlDevice device) const {
  return ask<unsigned>(functions_->enforced_power_limit, device.handle);
}

NvmlResult<NvmlPowerRange> Nvml::power_limit_range(NvmlDevice device) const {
  NvmlPowerRange range;
  const NvmlReturn code =
      functions_->power_limit_range(device.handle, &range.min_mw, &range.max_mw);
  if (code != NvmlReturn::success) return failure(functions_->power_limit_range, code);
  return range;
}

NvmlResult<void> Nvml::set_power_limit(NvmlDevice device, unsigned milliwatts) const {
  const NvmlReturn code = functions_->set_power_limit(device.handle, milliwatts);
  if (code != NvmlReturn::success) return failure(functions_->set_power_limit, code);
  return {};
}

NvmlResult<unsigned> Nvml::sm_clock_mhz(NvmlDevice device) const {
  return ask<unsigned>(functions_->clock, device.handle, nvml_abi::kClockSm);
}

NvmlResult<std::uint64_t> Nvml::clock_event_reasons(NvmlDevice device) const {
  const auto bits = ask<unsigned long long>(functions_->clock_event_reasons, device.handle);
  if (!bits) return std::unexpected(bits.error());
  return *bits;
}

NvmlResult<std::vector<NvmlProcess>> Nvml::compute_processes(NvmlDevice device) const {
  return list_processes(functions_->compute_processes, device);
}

NvmlResult<std::vector<NvmlProcess>> Nvml::graphics_processes(NvmlDevice device) const {
  return list_processes(functions_->graphics_processes, device);
}

NvmlResult<bool> Nvml::mig_enabled(NvmlDevice device) const {
  unsigned current = 0;
  unsigned pending = 0;  // after the next reset
  const NvmlReturn code = functions_->mig_mode(device.handle, &current, &pending);
  if (code != NvmlReturn::success) return failure(functions_->mig_mode, code);
  return current == nvml_abi::kMigEnabled;
}

NvmlResult<std::vector<NvmlInstance>> Nvml::mig_instances(NvmlDevice device) const {
  const auto count = ask<unsigned>(functions_->mig_count, device.handle);
  if (!count) return std::unexpected(count.error());
  std::vector<NvmlInstance> out;
  for (unsigned i = 0; i < *count; ++i) {
    const auto handle = ask<Device>(functions_->mig_device, device.handle, i);
    if (!handle) {
      if (handle.error().code == NvmlReturn::not_found) continue;  // a free place
      return std::unexpected(handle.error());
    }
    const auto gpu_instance = ask<unsigned>(functions_->gpu_instance_id, *handle);
    if (!gpu_instance) return std::unexpected(gpu_instance.error());
    const auto compute_instance = ask<unsigned>(functions_->compute_instance_id, *handle);
    if (!compute_instance) return std::unexpected(compute_instance.error());
    out.push_back({NvmlDevice{*handle}, *gpu_instance, *compute_instance});
  }
  return out;
}

NvmlResult<std::uint64_t> Nvml::mig_memory_bytes(NvmlDevice instance) const {
  const auto attributes = ask<nvml_abi::Attributes>(functions_->attributes, instance.handle);
  if (!attributes) return std::unexpected(attributes.error());
  return attributes->memory_mib << 20;
}

}  // namespace corral::gpu
