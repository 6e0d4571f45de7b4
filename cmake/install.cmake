# SPDX-License-Identifier: Apache-2.0
# bin/corral finds lib/corral/libcuda.so.1 (src/shim installs it) relative to itself: both places are
# fixed, not CMAKE_INSTALL_*DIR.
if(TARGET corral)
  install(TARGETS corral RUNTIME DESTINATION bin)
endif()
install(FILES LICENSE DESTINATION share/doc/corral)
foreach(document README.md CHANGELOG.md SECURITY.md docs/design.md docs/isolation.md docs/power.md docs/trace-format.md)
  install(FILES ${document} DESTINATION share/doc/corral OPTIONAL)
endforeach()
