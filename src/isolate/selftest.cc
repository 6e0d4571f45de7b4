// SPDX-License-Identifier: Apache-2.0
#include "isolate/selftest.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "isolate/mount.h"

namespace corral::isolate {
namespace {

constexpr struct {
  int flags;
  const char* name;
} kWays[] = {{O_RDONLY, "for reading"}, {O_WRONLY, "for writing"}, {O_ACCMODE, "in mode 3"}};

Fd try_open_file(const std::string& path, int flags) {
  return Fd(::open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

// errno of the open, 0 when it succeeded.
int try_open(const std::string& path, int flags) { return try_open_file(path, flags) ? 0 : errno; }

bool opened_a_cover(const Fd& fd, const Node& node) {
  struct stat status{};
  const bool null_itself = node.major == 1 && node.minor == 3;
  return fd && !null_itself && ::fstat(fd.get(), &status) == 0 && is_cover(status);
}

bool is_refusal(int error) { return error == EACCES || error == EPERM; }

Result<void> test_refused(const RefusedNode& refused) {
  for (const auto& way : kWays) {
    const Fd fd = try_open_file(refused.node.path, way.flags);
    const int error = fd ? 0 : errno;
    if (is_refusal(error) || opened_a_cover(fd, refused.node)) continue;
    if (error == ENOENT && refused.node.type == Node::Type::missing) continue;
    const std::string found = error == 0 ? "it opened" : std::strerror(error);
    return fail("self-test: " + refused.node.path + " (" + refused.why + ") must refuse to open " +
                    way.name + ", but: " + found,
                "the confinement does not hold here; nothing was started. Try another --enforce, "
                "and report this with the output of --dry-run",
                error);
  }
  return {};
}

}  // namespace

Result<void> self_test(std::span<const RefusedNode> refused, std::span<const AllowedNode> allowed) {
  for (const RefusedNode& node : refused) CORRAL_CHECK(test_refused(node));
  for (const AllowedNode& node : allowed) {
    const int error = try_open(node.path, O_RDWR);
    if (is_refusal(error))
      return fail(
          "self-test: " + node.path + " (" + node.why + ") must open, but: " + std::strerror(error),
          "check the node's permissions and the device rules of the group we run in", error);
  }
  return {};
}

std::vector<UncoveredNode> keep_uncovered(std::span<const RefusedNode> refused) {
  std::vector<UncoveredNode> kept;
  for (const RefusedNode& node : refused) {
    if (node.node.type == Node::Type::missing || node.node.type == Node::Type::covered) continue;
    Fd handle(::open(node.node.path.c_str(), O_PATH | O_CLOEXEC));
    if (handle) kept.push_back({.handle = std::move(handle), .node = node});
  }
  return kept;
}

Result<void> self_test_uncovered(std::span<const UncoveredNode> nodes) {
  for (const UncoveredNode& one : nodes) {
    RefusedNode node = one.node;
    node.why = node.node.path + " itself, " + node.why;
    node.node.path = "/proc/self/fd/" + std::to_string(one.handle.get());
    CORRAL_CHECK(test_refused(node));
  }
  return {};
}

bool refuses_every_open(const std::string& path) {
  for (const auto& way : kWays)
    if (!is_refusal(try_open(path, way.flags))) return false;
  return true;
}

}  // namespace corral::isolate
