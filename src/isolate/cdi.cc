// SPDX-License-Identifier: Apache-2.0
#include "isolate/cdi.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "isolate/command_words.h"

namespace corral::isolate {
namespace {

constexpr std::size_t kMaxFileBytes = 4U << 20;

using Json = nlohmann::json;

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

const Json& member(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

struct YamlLine {
  std::size_t indent = 0;
  bool item = false;     // "- key: value"; indent is that of the dash
  std::string_view key;  // empty: a scalar
  std::string_view value;
};

// 0 for a comment, a blank line, and the marks of a document; nullopt for what is not of block
// style.
std::optional<YamlLine> parse_line(std::string_view line) {
  YamlLine out;
  if (line.find('\t') != line.npos) return std::nullopt;
  out.indent = std::min(line.find_first_not_of(' '), line.size());
  line = trim(line);
  if (line.starts_with("- ") || line == "-") {
    out.item = true;
    line = trim(line.substr(1));
  }
  // A list in a list, flow style, an anchor, an alias, a tag.
  if (line.starts_with("- ") || line.find_first_of("{[&*!?") == 0) return std::nullopt;
  const auto colon = line.find(':');
  const bool key = colon != line.npos && (colon + 1 == line.size() || line[colon + 1] == ' ');
  if (!key || line.starts_with('"') || line.starts_with('\'')) {
    out.value = line;
    return out;
  }
  out.key = line.substr(0, colon);
  out.value = trim(line.substr(colon + 1));
  return out;
}

// A scalar without its quotes; nullopt: of a kind that is not read here.
std::optional<std::string> scalar(std::string_view value) {
  if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'')) {
    const std::string_view inner = value.substr(1, value.size() - 2);
    if (value.back() != value.front() || inner.find_first_of("\\\"'") != inner.npos)
      return std::nullopt;
    return std::string(inner);
  }
  if (value.empty() || std::string_view("&*!|>%@`[]{},#?").find(value.front()) != value.npos ||
      value.find(" #") != value.npos)
    return std::nullopt;
  return std::string(value);
}

// Follows the lines of a specification: which device they belong to, and whether to its nodes.
class YamlReader {
 public:
  std::vector<CdiDevice> read(std::string_view text) {
    for (const std::string_view raw : split(text, '\n')) {
      const std::string_view line = raw.substr(0, raw.find_last_not_of(" \r") + 1);
      const std::string_view words = trim(line);
      if (words.empty() || words.starts_with('#') || words == "---") continue;
      const auto parsed = parse_line(line);
      if (!parsed || !take(*parsed)) return {};
    }
    return finish();
  }

 private:
  bool take(const YamlLine& line) {
    if (line.indent == 0 && !line.item) return take_top(line);
    if (!in_devices_) return true;
    if (line.item && line.indent == item_indent_.value_or(line.indent)) {
      item_indent_ = line.indent;
      devices_.emplace_back();
      nodes_indent_.reset();
    }
    if (devices_.empty()) return false;
    return take_device_line(line);
  }

  bool take_top(const YamlLine& line) {
    in_devices_ = line.key == "devices";
    item_indent_.reset();
    if (in_devices_) return line.value.empty() || line.value == "[]";
    if (line.key != "kind") return true;
    const auto value = scalar(line.value);
    kind_ = value.value_or("");
    return value.has_value();
  }

  bool take_device_line(const YamlLine& line) {
    const std::size_t column = line.indent + (line.item ? 2 : 0);
    const bool inside = nodes_indent_ && (line.indent > *nodes_indent_ ||
                                          (line.indent == *nodes_indent_ && line.item));
    if (!inside) nodes_indent_.reset();
    if (inside) return take_node_line(line);
    if (line.key == "deviceNodes") {
      nodes_indent_ = column;
      return line.value.empty();
    }
    if (line.key != "name" || column != *item_indent_ + 2) return true;
    const auto value = scalar(line.value);
    if (value) devices_.back().name = *value;
    return value.has_value();
  }

  // hostPath stands for the node of the host where the container's has another name.
  bool take_node_line(const YamlLine& line) {
    std::vector<std::string>& nodes = devices_.back().nodes;
    if (line.item) {
      nodes.emplace_back();
      host_path_ = false;
    }
    if (line.key != "path" && line.key != "hostPath") return true;
    const auto value = scalar(line.value);
    if (!value || nodes.empty()) return false;
    if (line.key == "hostPath" || !host_path_) nodes.back() = *value;
    host_path_ = host_path_ || line.key == "hostPath";
    return true;
  }

  std::vector<CdiDevice> finish() {
    if (kind_.empty()) return {};
    for (CdiDevice& device : devices_) {
      if (device.name.empty()) return {};
      device.name.insert(0, kind_ + "=");
    }
    return std::move(devices_);
  }

  bool in_devices_ = false;
  std::optional<std::size_t> item_indent_;
  std::optional<std::size_t> nodes_indent_;
  bool host_path_ = false;
  std::string kind_;
  std::vector<CdiDevice> devices_;
};

// "/dev/nvidia0" and not "/dev/nvidiactl".
bool is_gpu_node(std::string_view path) {
  constexpr std::string_view kPrefix = "nvidia";
  const std::string_view name = base_name(path);
  return name.starts_with(kPrefix) &&
         parse_number<unsigned>(name.substr(kPrefix.size())).has_value();
}

bool brings_only(const CdiDevice& device, const gpu::Gpu& gpu) {
  bool found = false;
  for (const std::string& node : device.nodes) {
    if (node == gpu.node)
      found = true;
    else if (is_gpu_node(node))
      return false;
  }
  return found;
}

}  // namespace

std::vector<CdiDevice> parse_cdi_json(std::string_view text) {
  const Json spec = Json::parse(text, nullptr, false);
  if (!spec.is_object()) return {};
  const std::string kind = text_of(spec, "kind");
  const Json& list = member(spec, "devices");
  if (kind.empty() || !list.is_array()) return {};
  std::vector<CdiDevice> devices;
  for (const Json& entry : list) {
    if (!entry.is_object()) return {};
    CdiDevice device{.name = kind + "=" + text_of(entry, "name"), .nodes = {}};
    const Json& nodes = member(member(entry, "containerEdits"), "deviceNodes");
    for (const Json& node : nodes.is_array() ? nodes : Json::array()) {
      if (!node.is_object()) return {};
      const std::string host_path = text_of(node, "hostPath");
      device.nodes.push_back(host_path.empty() ? text_of(node, "path") : host_path);
    }
    if (!device.name.ends_with('=')) devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<CdiDevice> parse_cdi_yaml(std::string_view text) { return YamlReader().read(text); }

std::vector<CdiDevice> read_cdi(const host::Root& root) {
  std::vector<CdiDevice> devices;
  for (const std::string_view folder : {"/etc/cdi", "/var/run/cdi"}) {
    const std::string path = root.path(folder);
    for (const std::string& name : list_folder(path).value_or(std::vector<std::string>{})) {
      const bool json = name.ends_with(".json");
      if (!json && !name.ends_with(".yaml") && !name.ends_with(".yml")) continue;
      const auto text = read_file(path + "/" + name, kMaxFileBytes);
      if (!text) continue;
      for (CdiDevice& device : json ? parse_cdi_json(*text) : parse_cdi_yaml(*text)) {
        for (std::string& node : device.nodes) node = root.path(node);
        std::erase_if(devices, [&](const CdiDevice& d) { return d.name == device.name; });
        devices.push_back(std::move(device));
      }
    }
  }
  return devices;
}

std::optional<std::string> cdi_name(const std::vector<CdiDevice>& devices, const gpu::Gpu& gpu) {
  const CdiDevice* best = nullptr;
  for (const CdiDevice& device : devices) {
    if (gpu.node.empty() || !brings_only(device, gpu)) continue;
    const bool by_uuid = !gpu.uuid.empty() && device.name.ends_with("=" + gpu.uuid);
    if (best == nullptr || by_uuid) best = &device;
  }
  if (best == nullptr) return std::nullopt;
  return best->name;
}

}  // namespace corral::isolate
