// SPDX-License-Identifier: Apache-2.0
// Where the dynamic loader of a new process would find a library, without loading it: opening the
// real driver costs milliseconds and runs its code in this process.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/root.h"

namespace corral::host {

// Paths for `soname` in a loader cache of this architecture, in the cache's order. Empty where
// `cache` is not one
// ("glibc-ld.so.cache1.1", glibc's elf/dl-cache.h) or is damaged.
std::vector<std::string> find_in_loader_cache(std::string_view cache, std::string_view soname);

// The first existing file in: `library_path` (LD_LIBRARY_PATH's form), the loader cache, the
// default folders. A program's own RPATH is not known here.
std::optional<std::string> find_library(const Root& root, std::string_view soname,
                                        std::string_view library_path);

}  // namespace corral::host
