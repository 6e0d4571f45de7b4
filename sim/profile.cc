// SPDX-License-Identifier: Apache-2.0
// Turns the JSON of a profile into the shared state and the facts for /proc and /sys.
#include "profile.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

namespace corral::sim {
namespace {

using nlohmann::json;

// The fields of one object, with defaults behind it. The first field that is wrong is kept; the
// caller asks once, at the end.
class Fields {
 public:
  Fields(std::string where, const json& own, const json& defaults)
      : where_(std::move(where)), own_(own), defaults_(defaults) {}

  template <class Number>
  void number(const char* name, Number& out, double scale = 1) {
    const json* value = find(name);
    if (value == nullptr || !value->is_number()) return note(name, "a number");
    out = static_cast<Number>(std::llround(value->get<double>() * scale));
  }

  void text(const char* name, std::string& out) {
    const json* value = find(name);
    if (value == nullptr || !value->is_string()) return note(name, "a text");
    out = value->get<std::string>();
  }

  template <std::size_t size>
  void text(const char* name, char (&out)[size]) {
    std::string value;
    text(name, value);
    if (value.size() >= size) return note(name, fmt::format("at most {} characters", size - 1));
    std::memcpy(out, value.c_str(), value.size() + 1);
  }

  void optional_number(const char* name, std::optional<unsigned>& out) {
    if (find(name) == nullptr) return;
    unsigned value = 0;
    number(name, value);
    out = value;
  }

  // "0x233510de"
  void hex(const char* name, std::uint32_t& out) {
    std::string value;
    text(name, value);
    if (std::sscanf(value.c_str(), "0x%x", &out) != 1) note(name, "like \"0x233510de\"");
  }

  void note(const char* name, const std::string& wanted) {
    if (!error_)
      error_ = Error{fmt::format("{}: field \"{}\" must be {}", where_, name, wanted), {}, 0};
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const json* find(const char* name) const {
    for (const json* place : {&own_, &defaults_}) {
      if (const auto found = place->find(name); found != place->end()) return &*found;
    }
    return nullptr;
  }

  std::string where_;
  const json& own_;
  const json& defaults_;
  std::optional<Error> error_;
};

auto bus_order(const Gpu& gpu) {
  return std::tuple(gpu.pci_domain, gpu.pci_bus, gpu.pci_device, gpu.pci_function);
}

// The driver numbers capabilities by place: 135 a GPU, 9 a GPU instance, from 3 on.
std::uint32_t capability_minor(const Gpu& gpu, std::uint32_t gpu_instance) {
  return 3 + 135 * gpu.minor + 9 * gpu_instance;
}

Result<void> parse_instances(const std::string& where, const json& list, const json& none,
                             Gpu& gpu) {
  if (!list.is_array() || list.size() > kMaxMig) {
    return fail(fmt::format("{}: \"mig\" must be a list of at most {}", where, kMaxMig));
  }
  gpu.mig_enabled = 1;
  for (const json& own : list) {
    MigInstance& instance = gpu.mig[gpu.mig_count];
    Fields fields(fmt::format("{}, MIG instance {}", where, gpu.mig_count), own, none);
    fields.text("uuid", instance.uuid);
    fields.text("profile", instance.profile);
    fields.number("gpu_instance", instance.gpu_instance);
    fields.number("compute_instance", instance.compute_instance);
    fields.number("multiprocessors", instance.multiprocessors);
    fields.number("memory_mib", instance.memory_bytes, static_cast<double>(kMiB));
    if (fields.error()) return std::unexpected(*fields.error());
    instance.gpu_capability_minor = capability_minor(gpu, instance.gpu_instance);
    instance.compute_capability_minor =
        instance.gpu_capability_minor + 1 + instance.compute_instance;
    ++gpu.mig_count;
  }
  return {};
}

Result<void> parse_gpu(const json& own, const json& defaults, const std::string& where, Gpu& gpu,
                       HostGpu& host) {
  Fields fields(where, own, defaults);
  fields.text("name", gpu.name);
  fields.text("uuid", gpu.uuid);
  std::string pci;
  fields.text("pci", pci);
  if (std::sscanf(pci.c_str(), "%x:%x:%x.%x", &gpu.pci_domain, &gpu.pci_bus, &gpu.pci_device,
                  &gpu.pci_function) != 4) {
    fields.note("pci", "like \"0000:00:06.0\"");
  }
  fields.number("minor", gpu.minor);
  fields.hex("pci_device_id", gpu.pci_device_id);
  fields.hex("pci_subsystem_id", gpu.pci_subsystem_id);
  fields.number("speed_rank", gpu.speed_rank);
  fields.number("compute_major", gpu.compute_major);
  fields.number("compute_minor", gpu.compute_minor);
  fields.number("multiprocessors", gpu.multiprocessors);
  fields.number("memory_mib", gpu.memory_bytes, static_cast<double>(kMiB));
  fields.number("reserved_mib", gpu.reserved_bytes, static_cast<double>(kMiB));
  fields.number("context_mib", gpu.context_bytes, static_cast<double>(kMiB));
  fields.number("awake_mib", gpu.awake_bytes, static_cast<double>(kMiB));
  fields.number("idle_w", gpu.idle_mw, 1000);
  fields.number("context_w", gpu.context_mw, 1000);
  fields.number("idle_mhz", gpu.idle_mhz);
  fields.number("context_mhz", gpu.context_mhz);
  fields.number("memory_mhz", gpu.memory_mhz);
  fields.number("video_mhz", gpu.video_mhz);
  fields.number("idle_c", gpu.idle_c);
  fields.number("context_c", gpu.context_c);
  fields.number("power_limit_w", gpu.limit_mw, 1000);
  fields.number("power_limit_min_w", gpu.limit_min_mw, 1000);
  fields.number("power_limit_max_w", gpu.limit_max_mw, 1000);
  fields.number("persistence", gpu.persistence);
  fields.number("irq", host.irq);
  fields.text("video_bios", host.video_bios);
  fields.number("numa_node", host.numa_node);
  fields.text("local_cpus", host.local_cpus);
  fields.text("link_speed", host.link_speed);
  fields.number("link_width", host.link_width);
  fields.optional_number("drm_card", host.drm_card);
  fields.optional_number("drm_render", host.drm_render);
  if (fields.error()) return std::unexpected(*fields.error());
  if (const auto mig = own.find("mig"); mig != own.end()) {
    return parse_instances(where, *mig, json::object(), gpu);
  }
  return {};
}

}  // namespace

Result<Profile> parse_profile(const std::string& text) {
  const json profile = json::parse(text, nullptr, false, true);
  if (!profile.is_object()) return fail("the profile is not a JSON object");
  const json none = json::object();
  const json& defaults = profile.contains("each_gpu") ? profile["each_gpu"] : none;
  if (!profile.contains("gpus") || !profile["gpus"].is_array() || !defaults.is_object()) {
    return fail("the profile needs a list \"gpus\", and \"each_gpu\" must be an object");
  }
  const json& gpus = profile["gpus"];
  if (gpus.size() > kMaxGpus)
    return fail(fmt::format("{} GPUs; at most {} fit", gpus.size(), kMaxGpus));

  Profile result{.state = std::make_unique<State>(), .host = std::vector<HostGpu>(gpus.size())};
  State& state = *result.state;
  state.magic = kStateMagic;
  state.version = kStateVersion;
  state.bytes = sizeof(State);
  state.gpu_count = static_cast<std::uint32_t>(gpus.size());

  Fields fields("the profile", profile, none);
  fields.text("driver_version", state.driver_version);
  fields.text("nvml_version", state.nvml_version);
  fields.number("cuda_version", state.cuda_version);
  fields.number("decay_s", state.decay_ns, 1e9);
  if (fields.error()) return std::unexpected(*fields.error());

  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (!gpus[i].is_object()) return fail(fmt::format("GPU {} is not an object", i));
    CORRAL_CHECK(
        parse_gpu(gpus[i], defaults, fmt::format("GPU {}", i), state.gpus[i], result.host[i]));
    if (i > 0 && bus_order(state.gpus[i - 1]) >= bus_order(state.gpus[i])) {
      return fail(fmt::format("GPU {}: its PCI address must be above that of GPU {}", i, i - 1));
    }
  }
  return result;
}

}  // namespace corral::sim
