// SPDX-License-Identifier: Apache-2.0
#include "mps/daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "host/boot.h"
#include "host/proc.h"
#include "isolate/command_words.h"
#include "mps/control.h"

namespace corral::mps {
namespace {

constexpr int kSchema = 1;
constexpr std::size_t kMostRecord = 16U << 10;
// The kernel keeps 15 characters of a program's name.
constexpr std::string_view kControlComm = "nvidia-cuda-mps";

bool is_uuid(std::string_view text) {
  return text.starts_with("GPU-") && text.size() < 64 &&
         std::ranges::all_of(
             text,
             [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; });
}

// Whoever can write the record says what a client trusts.
Result<void> check_owner(const std::string& path, const struct stat& found) {
  const bool trusted = found.st_uid == 0 || found.st_uid == ::geteuid();
  if (!trusted || (found.st_mode & 022) != 0)
    return fail(path + ": somebody else could have written it",
                "only root's and one's own daemons are used; remove it");
  return {};
}

bool is_alive(const Record& record) {
  const auto now = host::boot_id(host::Root());
  const auto stat = host::read_stat(host::Root(), record.pid);
  return now && *now == record.boot_id && stat && stat->start_ticks == record.start_ticks &&
         stat->state != 'Z' && stat->comm == kControlComm;
}

}  // namespace

std::string record_text(const Record& record) {
  const nlohmann::json object = {
      {"schema", kSchema}, {"boot_id", record.boot_id},         {"gpu", record.gpu},
      {"pid", record.pid}, {"start_ticks", record.start_ticks}, {"enforced", record.enforced}};
  return object.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<Record> parse_record(std::string_view text) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return fail("it is not a JSON object");
  const auto text_of = [&](const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number_of = [&](const char* name) -> std::uint64_t {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
  };
  if (number_of("schema") != kSchema) return fail("it is of another version");
  const std::uint64_t pid = number_of("pid");
  Record record{.boot_id = text_of("boot_id"),
                .gpu = text_of("gpu"),
                .pid = static_cast<pid_t>(pid),
                .start_ticks = number_of("start_ticks"),
                .enforced = text_of("enforced")};
  constexpr std::uint64_t kMostPid = 1U << 22;  // PID_MAX_LIMIT of the kernel
  if (record.boot_id.empty() || !is_uuid(record.gpu) || pid == 0 || pid > kMostPid ||
      record.enforced.empty())
    return fail("boot_id, gpu, pid or enforced is missing or cannot be");
  return record;
}

std::vector<std::string> base_folders(const gpu::Machine& machine, uid_t uid, const char* runtime) {
  // Short: a socket's path has 107 characters.
  if (machine.simulated) return {machine.hardware.path("/run/mps")};
  std::vector<std::string> bases;
  if (uid != 0) {
    if (runtime != nullptr && *runtime == '/')
      bases.push_back(std::string(runtime) + "/corral-mps");
    bases.push_back(fmt::format("/tmp/corral-mps-{}", uid));
  }
  bases.emplace_back("/run/corral-mps");
  return bases;
}

Folder folder_of(const std::string& base, const std::string& gpu_uuid) {
  return {.path = base + "/" + gpu_uuid};
}

Result<std::optional<Daemon>> look(const Folder& folder) {
  const auto file = open_file(folder.record(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file) {
    // A runtime folder that a caller has left over from another user is not ours.
    if (file.error().sys == ENOENT || file.error().sys == ENOTDIR || file.error().sys == EACCES)
      return std::nullopt;
    return std::unexpected(file.error());
  }
  struct stat found{};
  struct stat parent{};
  if (::fstat(file->get(), &found) != 0 || ::lstat(folder.path.c_str(), &parent) != 0)
    return fail_sys("look at " + folder.record(), errno);
  if (!S_ISREG(found.st_mode)) return fail(folder.record() + ": not a file");
  CORRAL_CHECK(check_owner(folder.record(), found));
  CORRAL_CHECK(check_owner(folder.path, parent));
  CORRAL_TRY(const std::string text, read_file(folder.record(), kMostRecord));
  auto record = parse_record(text);
  if (!record)
    return fail(folder.record() + ": " + record.error().what, "remove it: rm -r " + folder.path);
  const bool alive = is_alive(*record);
  return Daemon{
      .folder = folder, .record = *std::move(record), .uid = found.st_uid, .alive = alive};
}

std::string confinement_text(const Record& record) {
  if (record.enforced == "none") return "NOT confined to it";
  if (record.enforced == "existing") return "confined to it by what is around it";
  if (record.enforced == kNoOtherGpu) return "its GPU is the only one";
  return "confined to it by " + printable(record.enforced);
}

Result<std::optional<Daemon>> find_daemon(const std::vector<std::string>& bases,
                                          const std::string& gpu_uuid) {
  std::optional<Daemon> dead;
  for (const std::string& base : bases) {
    CORRAL_TRY(std::optional<Daemon> daemon, look(folder_of(base, gpu_uuid)));
    if (daemon && daemon->alive) return daemon;
    if (daemon && !dead) dead = std::move(daemon);
  }
  return dead;
}

std::optional<Daemon> daemon_behind(const std::string& pipe_folder) {
  constexpr std::string_view kPipe = "/pipe";
  if (!pipe_folder.ends_with(kPipe)) return std::nullopt;
  const auto daemon = look({.path = pipe_folder.substr(0, pipe_folder.size() - kPipe.size())});
  return daemon && *daemon && (*daemon)->alive ? *daemon : std::nullopt;
}

bool is_control_daemon(const std::vector<std::string>& arguments) {
  // An interpreter may stand before it.
  const auto program = std::ranges::find(
      arguments.begin(), arguments.begin() + std::min<std::ptrdiff_t>(2, std::ssize(arguments)),
      kControlProgram, [](const std::string& word) { return isolate::base_name(word); });
  if (program == arguments.begin() + std::min<std::ptrdiff_t>(2, std::ssize(arguments)))
    return false;
  constexpr std::string_view kLong[] = {"--daemon", "--foreground", "--forground"};
  return std::any_of(program + 1, arguments.end(), [&](const std::string& word) {
    const bool letters = word.size() > 1 && word[0] == '-' && word[1] != '-';
    return letters ? word.find_first_of("df") != word.npos
                   : std::ranges::find(kLong, word) != std::end(kLong);
  });
}

std::vector<SeenDaemon> control_daemons(const host::Root& root) {
  std::vector<SeenDaemon> out;
  const auto pids = host::list_pids(root);
  if (!pids) return out;
  for (const pid_t pid : *pids) {
    const auto stat = host::read_stat(root, pid);
    if (!stat || stat->comm != kControlComm || stat->state == 'Z') continue;
    const auto arguments = host::read_arguments(root, pid);
    const auto status = host::read_status(root, pid);
    if (!arguments || !is_control_daemon(*arguments) || !status) continue;
    SeenDaemon seen{.pid = pid,
                    .uid = status->uid,
                    .start_ticks = stat->start_ticks,
                    .environment_known = false,
                    .pipe_folder = {},
                    .visible_devices = {}};
    const auto pipe = host::environment_variable(root, pid, "CUDA_MPS_PIPE_DIRECTORY");
    const auto visible = host::environment_variable(root, pid, "CUDA_VISIBLE_DEVICES");
    if (pipe && visible) {
      seen.environment_known = true;
      seen.pipe_folder = *pipe;
      seen.visible_devices = *visible;
    }
    out.push_back(std::move(seen));
  }
  return out;
}

}  // namespace corral::mps
