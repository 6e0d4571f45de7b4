# SPDX-License-Identifier: Apache-2.0
# The libraries chosen in docs/design.md section 5, all from Debian, all linked statically.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)

# Debian's {fmt} has no static archive: header-only.
find_package(fmt REQUIRED)

add_library(corral_libbpf INTERFACE)
find_library(CORRAL_LIBBPF_A NAMES libbpf.a REQUIRED)
find_library(CORRAL_LIBELF_A NAMES libelf.a REQUIRED)
find_library(CORRAL_LIBZ_A NAMES libz.a REQUIRED)
target_link_libraries(corral_libbpf INTERFACE ${CORRAL_LIBBPF_A} ${CORRAL_LIBELF_A} ${CORRAL_LIBZ_A})
