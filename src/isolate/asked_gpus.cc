// SPDX-License-Identifier: Apache-2.0
#include "isolate/asked_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace corral::isolate {
namespace {

using Answer = AskedGpus::Answer;

bool contains(const auto& range, const auto& value) {
  return std::ranges::find(range, value) != std::ranges::end(range);
}

bool is_given_whole(const Request& request, unsigned index) {
  return contains(request.allowed.gpus, index) &&
         std::ranges::none_of(request.allowed.mig,
                              [&](const gpu::MigRef& ref) { return ref.gpu == index; });
}

// What one word names, and whether it was given; nullopt: it names nothing that is known here.
struct Named {
  std::string name;
  bool given = false;
};

std::optional<Named> name_gpu(const Request& request, const gpu::Gpu& gpu) {
  return Named{.name = fmt::format("GPU {}", gpu.index),
               .given = is_given_whole(request, gpu.index)};
}

std::optional<Named> by_number(const Request& request, std::string_view word) {
  const auto number = parse_number<unsigned>(word);
  const std::vector<gpu::Gpu>& gpus = request.inventory.gpus;
  if (!number || !request.inventory.hidden.empty() || *number >= gpus.size()) return std::nullopt;
  return name_gpu(request, gpus[*number]);
}

bool begins(std::string_view uuid, std::string_view word) {
  constexpr std::size_t kPrefix = 4;  // "GPU-", "MIG-": more than that must be there
  return word.size() > kPrefix && lower(uuid).starts_with(lower(word));
}

std::optional<Named> by_uuid(const Request& request, std::string_view word) {
  for (const gpu::Gpu& gpu : request.inventory.gpus) {
    if (begins(gpu.uuid, word)) return name_gpu(request, gpu);
    for (unsigned i = 0; i < gpu.mig.size(); ++i)
      if (begins(gpu.mig[i].uuid, word))
        return Named{
            .name = gpu.mig[i].uuid,
            .given = is_given_whole(request, gpu.index) ||
                     contains(request.allowed.mig, gpu::MigRef{.gpu = gpu.index, .instance = i})};
  }
  for (const gpu::Gpu& gpu : request.inventory.hidden)
    if (begins(gpu.uuid, word)) return Named{.name = "the closed GPU " + gpu.uuid, .given = false};
  return std::nullopt;
}

std::optional<Named> by_word(const Request& request, std::string_view word) {
  return word.starts_with("GPU-") || word.starts_with("MIG-") ? by_uuid(request, word)
                                                              : by_number(request, word);
}

std::optional<Named> by_node(const Request& request, std::string_view node) {
  const std::string path = request.hardware.path(node);
  for (const std::vector<gpu::Gpu>* list : {&request.inventory.gpus, &request.inventory.hidden})
    for (const gpu::Gpu& gpu : *list)
      if (gpu.node == path) return name_gpu(request, gpu);
  return std::nullopt;
}

// Gathers what the options ask for.
class Sum {
 public:
  explicit Sum(const Request& request) : request_(request) {}

  void everything(const std::string& option) {
    const bool all = request_.inventory.hidden.empty() &&
                     std::ranges::all_of(request_.inventory.gpus, [&](const gpu::Gpu& gpu) {
                       return is_given_whole(request_, gpu.index);
                     });
    note(option, Named{.name = "every GPU", .given = all});
  }
  void word(const std::string& option, std::string_view word) {
    note(option, by_word(request_, word));
  }
  void note(const std::string& option, std::optional<Named> named) {
    if (!contains(options_, option)) options_.push_back(option);
    if (!named) {
      unknown_ = true;
      return;
    }
    outside_ = outside_ || !named->given;
    if (!contains(names_, named->name)) names_.push_back(std::move(named->name));
  }

  AskedGpus answer() const {
    const std::string option = printable(join_and(options_));
    const std::string given = given_text(request_);
    if (options_.empty()) return {};
    if (outside_)
      return {.answer = Answer::outside,
              .words = fmt::format("{} asks for {}, this run was given {}", option,
                                   join_and(names_), given)};
    if (unknown_)
      return {.answer = Answer::unknown,
              .words = fmt::format("what {} means is not known here, this run was given {}", option,
                                   given)};
    if (names_.empty()) return {};
    return {.answer = Answer::within,
            .words = fmt::format("{} asks for {}, as given", option, join_and(names_))};
  }

 private:
  const Request& request_;
  std::vector<std::string> options_;
  std::vector<std::string> names_;
  bool outside_ = false;
  bool unknown_ = false;
};

void add_gpus_option(const GpusOption& value, Sum& sum) {
  using Kind = GpusOption::Kind;
  const std::string option = "--gpus " + shell_quote(value.text);
  if (value.kind == Kind::all) sum.everything(option);
  if (value.kind == Kind::not_read) sum.note(option, std::nullopt);
  for (const std::string& device : value.devices) {
    if (device == "all")
      sum.everything(option);
    else
      sum.word(option, device);
  }
  // Docker takes the first ones (moby, daemon/nvidia_linux.go): the slip of who means GPU 1.
  for (unsigned i = 0; value.kind == Kind::count && i < value.count; ++i)
    sum.word(option + " (a count)", std::to_string(i));
}

void add_visible_devices(const ContainerCommand& command, Sum& sum) {
  if (!command.visible_devices) return;
  const std::string& value = *command.visible_devices;
  const std::string option = "NVIDIA_VISIBLE_DEVICES=" + value;
  if (value.empty() || value == "none" || value == "void") return;
  for (const std::string_view word : split(value, ',')) {
    if (word == "all")
      sum.everything(option);
    else
      sum.word(option, word);
  }
}

void add_cdi(const std::string& name, const Request& request, const std::vector<CdiDevice>& devices,
             Sum& sum) {
  const std::string option = "--device " + name;
  if (name.ends_with("=all")) return sum.everything(option);
  const auto device = std::ranges::find(devices, name, &CdiDevice::name);
  bool found = false;
  if (device != devices.end())
    for (const gpu::Gpu& gpu : request.inventory.gpus)
      if (contains(device->nodes, gpu.node)) {
        sum.note(option, name_gpu(request, gpu));
        found = true;
      }
  if (found) return;
  const std::string_view word = std::string_view(name).substr(name.find('=') + 1);
  sum.note(option, word.starts_with("GPU-") || word.starts_with("MIG-") ? by_uuid(request, word)
                                                                        : std::nullopt);
}

}  // namespace

std::string given_text(const Request& request) {
  if (request.allowed.empty()) return "no GPU";
  std::vector<std::string> parts;
  bool first = true;
  for (const unsigned index : request.allowed.gpus) {
    std::string part = (first ? "GPU " : "") + std::to_string(index);
    first = false;
    std::vector<std::string> instances;
    for (const gpu::MigRef& ref : request.allowed.mig)
      if (ref.gpu == index)
        instances.push_back(request.inventory.gpus[index].mig[ref.instance].uuid);
    if (!instances.empty()) part += " (" + join(instances, ", ") + ")";
    parts.push_back(std::move(part));
  }
  return join_and(parts);
}

AskedGpus judge_asked_gpus(const ContainerCommand& command, const Request& request,
                           const std::vector<CdiDevice>& devices) {
  for (const GpusOption& value : command.gpus)
    if (value.kind == GpusOption::Kind::refused)
      return {.answer = Answer::refused,
              .words = fmt::format("it will be refused, for in --gpus {} {}",
                                   printable(shell_quote(value.text)), printable(value.why))};
  Sum sum(request);
  if (!command.opens_everything.empty()) sum.everything(command.opens_everything);
  for (const GpusOption& value : command.gpus) add_gpus_option(value, sum);
  add_visible_devices(command, sum);
  for (const std::string& name : command.cdi) add_cdi(name, request, devices, sum);
  for (const std::string& node : command.nodes)
    if (const auto named = by_node(request, node)) sum.note("--device " + node, named);
  AskedGpus asked = sum.answer();
  if (asked.answer != Answer::nothing) return asked;
  if (!command.complete)
    return {.answer = Answer::unknown, .words = "which GPUs it asks for was not read to the end"};
  if (command.passes_visible_devices)
    return {.answer = Answer::within, .words = "NVIDIA_VISIBLE_DEVICES is passed on, as given"};
  return asked;
}

}  // namespace corral::isolate
