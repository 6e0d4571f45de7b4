// SPDX-License-Identifier: Apache-2.0
// Mounts of the job's own: /dev/null lies over each refused node, and the job cannot take it off.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "host/root.h"

namespace corral::isolate {

// Whether this is what covers nodes: the null device.
bool is_cover(const struct stat& status);

struct MountCover {
  std::vector<std::string> nodes;  // every name of every refused node that exists
  // /proc/driver/nvidia/params: shown with ModifyDeviceFiles 0, so that the driver's libraries do
  // not try to make nodes. Empty: not there.
  std::string driver_params;
  // Without CAP_SYS_ADMIN: mounts are made in a user namespace, and a second one below it locks
  // them and leaves the job the user and group that it had.
  bool user_namespaces = false;
};

// Child: moves this process into a mount namespace of its own, private in both directions, and
// covers the nodes there. The process must have one thread only. The covers are locked, which takes
// a user namespace of the kernel's also where the job gets none. Without user namespaces the
// working folder is entered again by its path.
Result<void> enter_covered_mounts(const MountCover& cover);

// Child, after everything that needs CAP_SYS_ADMIN, and only without user namespaces: gives up for
// good the capabilities that could take a cover off or go round it (mounting, making nodes, file
// handles, tracing, modules, raw I/O, kexec). The rest of root's stays.
Result<void> drop_mount_rights();

// The text of /proc/driver/nvidia/params as the job sees it.
std::string without_device_files(std::string_view params);

// What the administrator may have set against user namespaces; nullopt: this kernel has no such
// setting.
struct NamespaceSettings {
  std::optional<long> max_user_namespaces{};   // user.max_user_namespaces
  std::optional<long> unprivileged_clone{};    // kernel.unprivileged_userns_clone (Debian)
  std::optional<long> apparmor_restriction{};  // kernel.apparmor_restrict_unprivileged_userns
  bool filtered = false;                       // a seccomp filter is on this process
};
NamespaceSettings read_namespace_settings(const host::Root& root);

// Why the attempt that ended with `error` failed, and what would help.
Error explain_mount_trouble(const Error& error, const NamespaceSettings& settings,
                            bool user_namespaces);

// Tries all of it without any node in a process of its own, about a millisecond: settings alone do
// not tell what a security module or a container's policy says.
Result<void> try_covered_mounts(bool user_namespaces);

}  // namespace corral::isolate
