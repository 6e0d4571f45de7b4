// SPDX-License-Identifier: Apache-2.0
#include "mps/control.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>

#include "base/subprocess.h"
#include "base/text.h"
#include "launch/environment.h"

extern char** environ;

namespace corral::mps {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostShown = 200;

// What is asked of the daemon behind a pipe folder.
struct Command {
  std::vector<std::string> arguments;  // after the program
  std::string input;                   // its standard input
};

Result<Answer> ask(const std::string& program, const std::string& pipe_folder,
                   const Command& command, milliseconds patience) {
  launch::Environment environment(environ);
  environment.set("CUDA_MPS_PIPE_DIRECTORY", pipe_folder);
  Question question{
      .words = {program}, .environment = environment.entries(), .input = command.input};
  question.words.insert(question.words.end(), command.arguments.begin(), command.arguments.end());
  auto answer = ask_program(question, patience);
  if (!answer)
    return fail(fmt::format("the MPS daemon at {} {}", pipe_folder, answer.error().what));
  return answer;
}

Command v3(std::initializer_list<std::string> words) { return {.arguments = words, .input = ""}; }
Command legacy(std::string command) {
  return {.arguments = {}, .input = std::move(command) + "\n"};
}

Error refusal(const std::string& pipe_folder, const Answer& answer) {
  return {fmt::format("no MPS daemon answers at {}: {}", pipe_folder,
                      answer.text.empty() ? fmt::format("exit code {}", answer.exit_code)
                                          : printable(trim(answer.text).substr(0, kMostShown))),
          "corral mps status shows those that run", 0};
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (const std::string_view line : split(text, '\n'))
    if (!trim(line).empty()) lines.push_back(trim(line));
  return lines;
}

Result<Serving> ask_legacy(const std::string& program, const std::string& pipe_folder,
                           milliseconds patience) {
  Serving serving{.dialect = Dialect::legacy, .servers = {}};
  CORRAL_TRY(const Answer answer, ask(program, pipe_folder, legacy("get_server_list"), patience));
  const auto servers = parse_pids(answer.text);
  if (answer.exit_code != 0 || !servers) return std::unexpected(refusal(pipe_folder, answer));
  for (const pid_t server : *servers) {
    CORRAL_TRY(const Answer list, ask(program, pipe_folder,
                                      legacy(fmt::format("get_client_list {}", server)), patience));
    const auto clients = parse_pids(list.text);
    // A server that has just ended.
    if (clients)
      serving.servers.push_back({.pid = server, .name = {}, .status = {}, .clients = *clients});
  }
  return serving;
}

}  // namespace

std::string_view dialect_name(Dialect dialect) {
  return dialect == Dialect::v3 ? "v3" : "legacy (v2)";
}

Result<std::string> find_control_program() {
  const char* path = std::getenv("PATH");
  for (const std::string_view folder : split(path != nullptr ? path : "/usr/bin:/bin", ':')) {
    if (!folder.starts_with('/')) continue;
    std::string full = std::string(folder) + "/" + std::string(kControlProgram);
    if (::access(full.c_str(), X_OK) == 0) return full;
  }
  return fail(
      std::string(kControlProgram) + ": not found on PATH",
      "it comes with the driver: nvidia-compute-utils on Ubuntu, nvidia-cuda-mps on Debian");
}

Result<Serving> ask_what_it_serves(const std::string& program, const std::string& pipe_folder,
                                   milliseconds patience) {
  // With the head line: a legacy daemon says "Unknown command", and an old program reads its empty
  // standard input and says nothing, which must not look like a list without servers.
  CORRAL_TRY(const Answer first,
             ask(program, pipe_folder, v3({"server", "list", "--format=csv"}), patience));
  auto servers = parse_v3_servers(first.text);
  if (!servers) return ask_legacy(program, pipe_folder, patience);
  Serving serving{.dialect = Dialect::v3, .servers = *std::move(servers)};
  for (Server& server : serving.servers) {
    CORRAL_TRY(
        const Answer list,
        ask(program, pipe_folder,
            v3({"client", "list", "--server=" + server.name, "--format=csv,noheader"}), patience));
    if (auto clients = parse_v3_clients(list.text)) server.clients = *std::move(clients);
  }
  return serving;
}

Result<void> terminate_clients(const std::string& program, const std::string& pipe_folder,
                               const Serving& serving, milliseconds patience) {
  for (const Server& server : serving.servers)
    for (const pid_t client : server.clients) {
      const Command command =
          serving.dialect == Dialect::v3
              ? v3({"client", "terminate", std::to_string(client)})
              : legacy(fmt::format("terminate_client {} {}", server.pid, client));
      CORRAL_TRY([[maybe_unused]] const Answer answer,
                 ask(program, pipe_folder, command, patience));
    }
  return {};
}

Result<void> quit(const std::string& program, const std::string& pipe_folder, Dialect dialect,
                  milliseconds patience) {
  CORRAL_TRY(
      const Answer answer,
      ask(program, pipe_folder, dialect == Dialect::v3 ? v3({"-q"}) : legacy("quit"), patience));
  if (answer.exit_code != 0) return std::unexpected(refusal(pipe_folder, answer));
  return {};
}

Result<std::vector<pid_t>> parse_pids(std::string_view answer) {
  std::vector<pid_t> pids;
  for (const std::string_view line : lines_of(answer)) {
    const auto pid = parse_number<pid_t>(line);
    if (!pid || *pid <= 0) return fail("no list of pids: " + printable(line));
    pids.push_back(*pid);
  }
  return pids;
}

Result<std::vector<Server>> parse_v3_servers(std::string_view csv) {
  const std::vector<std::string_view> lines = lines_of(csv);
  if (lines.empty()) return fail("no head line");
  std::vector<std::string> head;
  for (const std::string_view column : split(lines.front(), ','))
    head.push_back(lower(trim(column)));
  const auto column = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(head, name) - head.begin());
  };
  const std::size_t name = column("name");
  const std::size_t pid = column("pid");
  const std::size_t status = column("status");
  if (std::max({name, pid, status}) >= head.size())
    return fail("no columns name, pid and status: " + printable(lines.front()));
  std::vector<Server> servers;
  for (const std::string_view line : std::span(lines).subspan(1)) {
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() <= std::max({name, pid, status}))
      return fail("a line is short: " + printable(line));
    servers.push_back({.pid = parse_number<pid_t>(trim(cells[pid])).value_or(0),  // not started yet
                       .name = std::string(trim(cells[name])),
                       .status = std::string(trim(cells[status])),
                       .clients = {}});
  }
  return servers;
}

Result<std::vector<pid_t>> parse_v3_clients(std::string_view csv) {
  std::vector<pid_t> pids;
  for (const std::string_view line : lines_of(csv)) {
    // The command comes last and may hold commas.
    const auto pid = parse_number<pid_t>(trim(line.substr(0, line.find(','))));
    if (!pid || *pid <= 0) return fail("no list of clients: " + printable(line));
    if (std::ranges::find(pids, *pid) == pids.end()) pids.push_back(*pid);
  }
  return pids;
}

}  // namespace corral::mps
