# SPDX-License-Identifier: Apache-2.0
# bin/corral finds lib/corral/libcuda.so.1 (src/shim installs it) relative to itself: both places are
# fixed, not CMAKE_INSTALL_*DIR.
if(TARGET corral)
  install(TARGETS corral RUNTIME DESTINATION bin)
endif()
install(FILES LICENSE DESTINATION share/doc/corral)
install(FILES README.md CHANGELOG.md SECURITY.md DESTINATION share/doc/corral)
install(DIRECTORY docs DESTINATION share/doc/corral)  # they link to each other
