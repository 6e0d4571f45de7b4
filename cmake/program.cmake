# SPDX-License-Identifier: Apache-2.0
# Programs that run on any glibc >= 2.34 system with nothing installed.

# corral_program(NAME SOURCES… [DEPENDS…]): an executable that links everything but libc statically;
# tools/check_binary.sh holds it to that. It lies at the top of the build folder, to be run in place.
function(corral_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE corral_warnings corral_sanitizers ${arg_DEPENDS})
  target_link_options(${name} PRIVATE -pie -Wl,--gc-sections -Wl,--as-needed -Wl,-z,relro -Wl,-z,now)
  if(NOT CORRAL_SANITIZE) # a sanitizer's runtime wants the shared libraries
    target_link_options(${name} PRIVATE -static-libgcc -static-libstdc++)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/find_object.cc)
  endif()
endfunction()
