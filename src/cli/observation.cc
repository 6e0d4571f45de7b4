// SPDX-License-Identifier: Apache-2.0
#include "cli/observation.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "host/library_path.h"

namespace corral::cli {

std::optional<std::string> find_shim() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return std::nullopt;
  const auto folder = program.parent_path();
  for (const auto& candidate :
       {folder / "lib/corral/libcuda.so.1", folder / "../lib/corral/libcuda.so.1"})
    if (::access(candidate.c_str(), R_OK) == 0) return candidate.lexically_normal().string();
  return std::nullopt;
}

namespace {

// Inside another Corral's job the first libcuda.so.1 is that one's shim: the driver is what stands
// behind it.
std::string behind_a_shim(const std::string& library) {
  std::error_code error;
  const auto link = std::filesystem::path(library).parent_path() / "libcorral-driver.so";
  const auto driver = std::filesystem::read_symlink(link, error);
  return error ? library : driver.string();
}

}  // namespace

Observation observe(bool wanted, launch::Environment& environment) {
  Observation out;
  if (!wanted) {
    out.why_not = "contexts were not observed (--no-observe)";
    return out;
  }
  const std::string library_path = environment.get("LD_LIBRARY_PATH").value_or("");
  const auto driver = host::find_library(host::Root(), "libcuda.so.1", library_path);
  if (!driver) return out;  // no driver, no contexts: nothing to say
  out.driver = behind_a_shim(*driver);
  const auto shim = find_shim();
  if (!shim) {
    out.why_not = "contexts were not observed: lib/corral/libcuda.so.1 is not beside this program";
    return out;
  }
  auto folder = launch::make_run_folder(
      launch::run_folder_bases(::geteuid(), std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR")),
      *shim, out.driver);
  if (!folder) {
    out.why_not =
        "contexts were not observed: " + folder.error().what + " (" + folder.error().hint + ")";
    return out;
  }
  environment.prepend_path("LD_LIBRARY_PATH", folder->library_folder());
  environment.set("CORRAL_TRACE_DIR", folder->trace_folder());
  out.folder.emplace(*std::move(folder));
  return out;
}

}  // namespace corral::cli
