// SPDX-License-Identifier: Apache-2.0
#include "isolate/selftest.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"

namespace corral::isolate {
namespace {

constexpr struct {
  int flags;
  const char* name;
} kWays[] = {{O_RDONLY, "for reading"}, {O_WRONLY, "for writing"}, {O_ACCMODE, "in mode 3"}};

// errno of the open, 0 when it succeeded.
int try_open(const std::string& path, int flags) {
  const Fd fd(::open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return fd ? 0 : errno;
}

bool is_refusal(int error) { return error == EACCES || error == EPERM; }

Result<void> test_refused(const RefusedNode& refused) {
  for (const auto& way : kWays) {
    const int error = try_open(refused.node.path, way.flags);
    if (is_refusal(error)) continue;
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

bool refuses_every_open(const std::string& path) {
  for (const auto& way : kWays)
    if (!is_refusal(try_open(path, way.flags))) return false;
  return true;
}

}  // namespace corral::isolate
