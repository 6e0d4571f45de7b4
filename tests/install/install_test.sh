#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs a build into an empty folder and runs what is there: install_test.sh BUILD-FOLDER.
set -eu
build=$1
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT

fail() {
  echo "install_test: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$prefix/as told" >"$prefix/log" 2>&1 || {
  cat "$prefix/log" >&2
  fail "cmake --install failed"
}
# A prefix is a folder like any other: it may be moved afterwards.
mv "$prefix/as told" "$prefix/moved there"
installed="$prefix/moved there"

for file in bin/corral lib/corral/libcuda.so.1 share/doc/corral/LICENSE share/doc/corral/docs/mps.md share/doc/corral/docs/measured/README.md; do
  [ -e "$installed/$file" ] || fail "$file was not installed; there is: $(cd "$installed" && find . -type f -o -type l | sort | tr '\n' ' ')"
done
[ -x "$installed/bin/corral" ] || fail "bin/corral is not executable"

in_place=$("$build/corral" --version) || fail "corral --version in the build folder: exit $?"
# Nothing but the program and its folder: no variable, no other working folder.
moved=$(cd / && env -i "$installed/bin/corral" --version) || fail "installed corral --version: exit $?"
[ "$in_place" = "$moved" ] || fail "in place: '$in_place', installed: '$moved'"
case $moved in "corral "[0-9]*) ;; *) fail "--version says '$moved', wanted 'corral N…'" ;; esac
# An exception that finds its handler: the unwinder is linked statically.
code=0
env -i "$installed/bin/corral" run --no-such-option >"$prefix/log" 2>&1 || code=$?
[ "$code" = 64 ] || fail "corral run --no-such-option: exit $code, wanted 64: $(cat "$prefix/log")"
echo "$moved"
