// SPDX-License-Identifier: Apache-2.0
#include "cli/status.h"

#include <fcntl.h>
#include <poll.h>

#include <nlohmann/json.hpp>

#include "base/file.h"

namespace corral::cli {
namespace {

using Json = nlohmann::ordered_json;

// A reader that went away is no reason to disturb the job: its descriptor is not written to by
// then, the error is dropped.
void write_line(std::optional<int> fd, const Json& json) {
  if (!fd) return;
  pollfd room{.fd = *fd, .events = POLLOUT, .revents = 0};
  if (::poll(&room, 1, 1000) != 1 || (room.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) return;
  (void)write_all(*fd, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace

Status::Status(std::optional<int> fd) : fd_(fd) {
  if (fd_) ::fcntl(*fd_, F_SETFD, FD_CLOEXEC);
}

void Status::started(pid_t pid, std::string_view enforced) const {
  write_line(fd_, {{"event", "started"}, {"pid", pid}, {"enforced", enforced}});
}

void Status::failed(const launch::StartError& error) const {
  write_line(fd_, {{"event", "failed"},
                   {"code", error.exit_code},
                   {"error", error.error.what},
                   {"hint", error.error.hint}});
}

void Status::ended(const snapshot::Exit& exit, unsigned strays) const {
  write_line(fd_, {{"event", "ended"},
                   {"code", exit.code ? Json(*exit.code) : Json(nullptr)},
                   {"signal", exit.signal ? Json(*exit.signal) : Json(nullptr)},
                   {"strays", strays}});
}

}  // namespace corral::cli
