// SPDX-License-Identifier: Apache-2.0
#include "isolate/container_options.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/text.h"

namespace corral::isolate {
namespace {

// Of the program itself, before the verb: docker 27, podman 5, nerdctl 2.
constexpr std::string_view kGlobalValues[] = {"context",
                                              "host",
                                              "config",
                                              "log-level",
                                              "tlscacert",
                                              "tlscert",
                                              "tlskey",
                                              "connection",
                                              "url",
                                              "identity",
                                              "root",
                                              "runroot",
                                              "storage-driver",
                                              "storage-opt",
                                              "cgroup-manager",
                                              "conmon",
                                              "events-backend",
                                              "hooks-dir",
                                              "module",
                                              "network-cmd-path",
                                              "network-config-dir",
                                              "out",
                                              "runtime",
                                              "runtime-flag",
                                              "ssh",
                                              "tmpdir",
                                              "volumepath",
                                              "cdi-spec-dir",
                                              "imagestore",
                                              "namespace",
                                              "address",
                                              "snapshotter",
                                              "cni-path",
                                              "cni-netconfpath",
                                              "data-root",
                                              "hosts-dir"};
constexpr std::string_view kGlobalValueLetters = "cHlna";

// Of run, create and exec. What is in neither list is not known.
constexpr std::string_view kSwitches[] = {"detach",
                                          "interactive",
                                          "tty",
                                          "rm",
                                          "privileged",
                                          "publish-all",
                                          "init",
                                          "read-only",
                                          "no-healthcheck",
                                          "oom-kill-disable",
                                          "sig-proxy",
                                          "disable-content-trust",
                                          "quiet",
                                          "use-api-socket",
                                          "help",
                                          "replace",
                                          "tls-verify",
                                          "env-host",
                                          "http-proxy",
                                          "rmi",
                                          "rootfs",
                                          "no-hosts",
                                          "no-hostname",
                                          "passwd",
                                          "read-only-tmpfs",
                                          "unsetenv-all",
                                          "latest",
                                          "attach-stdin",
                                          "insecure-registry"};
constexpr std::string_view kSwitchLetters = "ditPq";
constexpr std::string_view kValues[] = {"add-host",
                                        "annotation",
                                        "arch",
                                        "attach",
                                        "authfile",
                                        "blkio-weight",
                                        "blkio-weight-device",
                                        "cap-add",
                                        "cap-drop",
                                        "cgroup-conf",
                                        "cgroup-parent",
                                        "cgroupns",
                                        "cgroups",
                                        "cidfile",
                                        "conmon-pidfile",
                                        "cpu-count",
                                        "cpu-percent",
                                        "cpu-period",
                                        "cpu-quota",
                                        "cpu-rt-period",
                                        "cpu-rt-runtime",
                                        "cpu-shares",
                                        "cpus",
                                        "cpuset-cpus",
                                        "cpuset-mems",
                                        "creds",
                                        "detach-keys",
                                        "device",
                                        "device-cgroup-rule",
                                        "device-read-bps",
                                        "device-read-iops",
                                        "device-write-bps",
                                        "device-write-iops",
                                        "dns",
                                        "dns-opt",
                                        "dns-option",
                                        "dns-search",
                                        "domainname",
                                        "entrypoint",
                                        "env",
                                        "env-file",
                                        "env-merge",
                                        "expose",
                                        "gidmap",
                                        "gpus",
                                        "group-add",
                                        "group-entry",
                                        "health-cmd",
                                        "health-interval",
                                        "health-on-failure",
                                        "health-retries",
                                        "health-start-interval",
                                        "health-start-period",
                                        "health-timeout",
                                        "hostname",
                                        "hostuser",
                                        "image-volume",
                                        "init-path",
                                        "ip",
                                        "ip6",
                                        "ipc",
                                        "isolation",
                                        "kernel-memory",
                                        "label",
                                        "label-file",
                                        "link",
                                        "link-local-ip",
                                        "log-driver",
                                        "log-opt",
                                        "mac-address",
                                        "memory",
                                        "memory-reservation",
                                        "memory-swap",
                                        "memory-swappiness",
                                        "mount",
                                        "name",
                                        "net",
                                        "net-alias",
                                        "network",
                                        "network-alias",
                                        "oom-score-adj",
                                        "os",
                                        "passwd-entry",
                                        "personality",
                                        "pid",
                                        "pidfile",
                                        "pids-limit",
                                        "platform",
                                        "pod",
                                        "pod-id-file",
                                        "preserve-fds",
                                        "publish",
                                        "pull",
                                        "restart",
                                        "retry",
                                        "retry-delay",
                                        "runtime",
                                        "sdnotify",
                                        "seccomp-policy",
                                        "secret",
                                        "security-opt",
                                        "shm-size",
                                        "stop-signal",
                                        "stop-timeout",
                                        "storage-opt",
                                        "subgidname",
                                        "subuidname",
                                        "sysctl",
                                        "systemd",
                                        "timeout",
                                        "tmpfs",
                                        "tz",
                                        "uidmap",
                                        "ulimit",
                                        "umask",
                                        "unsetenv",
                                        "user",
                                        "userns",
                                        "uts",
                                        "variant",
                                        "volume",
                                        "volume-driver",
                                        "volumes-from",
                                        "workdir"};
constexpr std::string_view kValueLetters = "acehlmpuvw";

constexpr std::string_view kNvidiaKind = "nvidia.com/";
constexpr std::string_view kVisible = "NVIDIA_VISIBLE_DEVICES";

bool contains(const auto& range, std::string_view word) {
  return std::ranges::find(range, word) != std::ranges::end(range);
}

// Fields of one line as Go's encoding/csv reads them; nullopt: it would not.
std::optional<std::vector<std::string>> csv_fields(std::string_view line) {
  std::vector<std::string> fields;
  for (;;) {
    std::string field;
    if (line.starts_with('"')) {
      line.remove_prefix(1);
      for (;;) {
        const auto quote = line.find('"');
        if (quote == line.npos) return std::nullopt;
        field += line.substr(0, quote);
        line.remove_prefix(quote + 1);
        if (!line.starts_with('"')) break;
        field += '"';
        line.remove_prefix(1);
      }
      if (!line.empty() && line.front() != ',') return std::nullopt;
    } else {
      field = line.substr(0, line.find(','));
      if (field.find('"') != field.npos) return std::nullopt;
      line.remove_prefix(field.size());
    }
    fields.push_back(std::move(field));
    if (line.empty()) return fields;
    line.remove_prefix(1);
  }
}

GpusOption refused(std::string_view value, std::string why) {
  return {.kind = GpusOption::Kind::refused,
          .count = 0,
          .devices = {},
          .text = std::string(value),
          .why = std::move(why)};
}

bool take_count(std::string_view value, std::optional<int>& count) {
  count = value == "all" ? -1 : parse_number<int>(value);
  return count.has_value();
}

struct Option {
  std::string_view name;  // "--gpus" without dashes; a letter for a short one
  std::string_view value;
};

bool names_dev(std::string_view volume) { return volume.substr(0, volume.find(':')) == "/dev"; }

// source=/dev in the fields of --mount.
bool mounts_dev(std::string_view mount) {
  return std::ranges::any_of(split(mount, ','), [](std::string_view field) {
    return field == "source=/dev" || field == "src=/dev";
  });
}

void take_device(std::string_view value, ContainerCommand& out) {
  if (value.starts_with(kNvidiaKind)) {
    out.cdi.emplace_back(value);
    return;
  }
  const std::string_view node = value.substr(0, value.find(':'));
  if (node == "/dev" || node == "/dev/") out.opens_everything = "--device /dev";
  out.nodes.emplace_back(node);
}

void take_variable(std::string_view setting, ContainerCommand& out) {
  if (!setting.starts_with(kVisible)) return;
  const std::string_view rest = setting.substr(kVisible.size());
  if (rest.empty()) out.passes_visible_devices = true;
  if (rest.starts_with('=')) {
    out.visible_devices = rest.substr(1);
    out.passes_visible_devices = false;
  }
}

void take(const Option& option, ContainerCommand& out) {
  const auto& [name, value] = option;
  if (name == "gpus") out.gpus.push_back(parse_gpus_option(value));
  if (name == "device") take_device(value, out);
  if (name == "env" || name == "e") take_variable(value, out);
  if (name == "privileged" && value != "false") out.opens_everything = "--privileged";
  if ((name == "volume" || name == "v") && names_dev(value)) out.opens_everything = "-v /dev";
  if (name == "mount" && mounts_dev(value)) out.opens_everything = "--mount of /dev";
}

using Rest = std::span<const std::string>;

// Takes one option off the front; false: it is not known.
bool take_long(Rest& words, ContainerCommand& out) {
  const std::string_view word = std::string_view(words.front()).substr(2);
  words = words.subspan(1);
  const auto equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  if (equals != word.npos) {
    take({name, word.substr(equals + 1)}, out);
    return contains(kSwitches, name) || contains(kValues, name);
  }
  if (contains(kSwitches, name)) {
    take({name, ""}, out);
    return true;
  }
  if (!contains(kValues, name)) return false;
  if (words.empty()) return true;
  take({name, words.front()}, out);
  words = words.subspan(1);
  return true;
}

bool take_short(Rest& words, ContainerCommand& out) {
  std::string_view letters = std::string_view(words.front()).substr(1);
  words = words.subspan(1);
  for (; !letters.empty(); letters.remove_prefix(1)) {
    const std::string_view letter = letters.substr(0, 1);
    if (kSwitchLetters.find(letter) != kSwitchLetters.npos) continue;
    if (kValueLetters.find(letter) == kValueLetters.npos) return false;
    std::string_view value = letters.substr(1);
    if (value.starts_with('=')) value.remove_prefix(1);
    if (letters.size() == 1) {
      if (words.empty()) return true;
      value = words.front();
      words = words.subspan(1);
    }
    take({letter, value}, out);
    return true;
  }
  return true;
}

bool is_option(std::string_view word) { return word.size() > 1 && word.front() == '-'; }

// "ssh://host", "tcp://host": not the socket of this machine.
bool is_elsewhere(std::string_view address) {
  return address.find("://") != address.npos && !address.starts_with("unix://") &&
         !address.starts_with("npipe://");
}

void take_global(std::string_view name, std::string_view value, ContainerCommand& out) {
  if (name == "H" || name == "host" || name == "url")
    out.remote = out.remote || is_elsewhere(value);
  if (name == "context" || name == "c") out.remote = value != "default";
  if (name == "connection" || name == "remote") out.remote = value != "false";
}

// Up to the verb.
void skip_globals(Rest& words, ContainerCommand& out) {
  while (!words.empty() && is_option(words.front())) {
    std::string_view word = words.front();
    words = words.subspan(1);
    const bool is_long = word.starts_with("--");
    word.remove_prefix(is_long ? 2 : 1);
    const auto equals = word.find('=');
    const std::string_view name = is_long ? word.substr(0, equals) : word.substr(0, 1);
    const bool takes_value = is_long ? contains(kGlobalValues, name)
                                     : kGlobalValueLetters.find(name) != kGlobalValueLetters.npos;
    std::string_view value = equals == word.npos ? "" : word.substr(equals + 1);
    if (!is_long && equals == word.npos) value = word.substr(1);
    if (takes_value && value.empty() && equals == word.npos && !words.empty()) {
      value = words.front();
      words = words.subspan(1);
    }
    take_global(name, value, out);
  }
}

}  // namespace

GpusOption parse_gpus_option(std::string_view value) {
  using Kind = GpusOption::Kind;
  GpusOption out{
      .kind = Kind::not_read, .count = 0, .devices = {}, .text = std::string(value), .why = {}};
  if (value.find_first_of("$`") != value.npos) return out;
  const auto fields = csv_fields(value);
  if (!fields) return refused(value, "the quotes in it do not fit");
  std::optional<int> count;
  for (const std::string& field : *fields) {
    const auto equals = field.find('=');
    const std::string_view key = std::string_view(field).substr(0, equals);
    if (equals == field.npos) {
      if (count) return refused(value, "it holds two counts");
      if (!out.devices.empty())
        return refused(value, "a list of devices needs double quotes of its own");
      if (!take_count(key, count))
        return refused(value, "\"" + field + "\" is neither all nor a number");
      continue;
    }
    const std::string_view text = std::string_view(field).substr(equals + 1);
    if (key == "device")
      for (const std::string_view device : split(text, ',')) out.devices.emplace_back(device);
    else if (key == "count" && !take_count(text, count))
      return refused(value, "\"" + field + "\" is neither all nor a number");
    else if (key != "count" && key != "driver" && key != "capabilities" && key != "options")
      return refused(value, "there is no key \"" + std::string(key) + "\"");
  }
  if (count && !out.devices.empty()) return refused(value, "it holds devices and a count");
  out.kind = !out.devices.empty() ? Kind::devices : Kind::count;
  if (out.devices.empty()) {
    const int number = count.value_or(1);
    if (number < 0) out.kind = Kind::all;
    out.count = number < 0 ? 0 : static_cast<unsigned>(number);
  }
  return out;
}

ContainerCommand parse_container_command(const Words& arguments) {
  ContainerCommand out;
  Rest words(arguments);
  skip_globals(words, out);
  if (words.empty()) return out;
  if (words.front() == "container" || words.front() == "image" || words.front() == "buildx" ||
      words.front() == "builder") {
    words = words.subspan(1);
    skip_globals(words, out);
    if (words.empty()) return out;
  }
  out.verb = words.front();
  words = words.subspan(1);
  if (out.verb != "run" && out.verb != "create" && out.verb != "exec") return out;
  while (!words.empty() && is_option(words.front()) && words.front() != "--") {
    const bool known =
        words.front().starts_with("--") ? take_long(words, out) : take_short(words, out);
    if (!known) {
      out.complete = false;
      return out;
    }
  }
  return out;
}

}  // namespace corral::isolate
