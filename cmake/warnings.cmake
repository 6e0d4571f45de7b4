# SPDX-License-Identifier: Apache-2.0
# Warnings and sanitizers for our own targets.
add_library(corral_warnings INTERFACE)
target_compile_options(corral_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
# Clang compiles only the fuzz targets; what it warns of beyond GCC is clang-tidy's to say.
target_compile_options(corral_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Werror>)
# For the linker's --gc-sections.
target_compile_options(corral_warnings INTERFACE -ffunction-sections -fdata-sections)

add_library(corral_sanitizers INTERFACE)
if(CORRAL_SANITIZE)
  target_compile_options(corral_sanitizers INTERFACE -fsanitize=${CORRAL_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(corral_sanitizers INTERFACE -fsanitize=${CORRAL_SANITIZE})
endif()
if(CORRAL_FUZZ)
  target_compile_options(corral_sanitizers INTERFACE -fsanitize=fuzzer-no-link)
endif()

# corral_folder(NAME SOURCES… [DEPENDS…]): the library of one folder of src/, static, with exactly these arrows.
# A folder of headers alone has no SOURCES.
function(corral_folder name)
  cmake_parse_arguments(arg "OBJECT" "" "SOURCES;DEPENDS" ${ARGN})
  if(NOT arg_SOURCES)
    add_library(corral_${name} INTERFACE)
    target_include_directories(corral_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(corral_${name} INTERFACE corral_sanitizers ${arg_DEPENDS})
    return()
  endif()
  if(arg_OBJECT)
    # Self-registering files: the linker drops an unreferenced member of a static library.
    add_library(corral_${name} OBJECT ${arg_SOURCES})
  else()
    add_library(corral_${name} STATIC ${arg_SOURCES})
  endif()
  target_include_directories(corral_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(corral_${name} PRIVATE corral_warnings PUBLIC corral_sanitizers ${arg_DEPENDS})
endfunction()
