#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ./dev on made-up machines: what it installs, how it says so, and what it says when it cannot.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# machine UID: an empty machine, reached by its PATH alone, for a user of that number.
machine() {
  rm -rf "${work:?}"/*
  mkdir -p "$work/bin" "$work/tree"
  cp "$here/../../dev" "$work/tree/dev"
  for tool in dirname env cat mkdir sh sed touch chmod; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done
  fake id "echo $1"
}

# fake NAME SCRIPT
fake() {
  printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# An apt-get that writes down what it is told and brings what it is asked for.
fake_apt_get() {
  # shellcheck disable=SC2016 # the fake expands it
  fake apt-get 'echo "$*" >>"'"$work"'/apt.log"
case "$*" in *" install "*) for tool in g++ gcc ninja pkg-config; do echo "#!/bin/sh" >"'"$work"'/bin/$tool"; chmod +x "'"$work"'/bin/$tool"; done
  echo "#!/bin/sh
echo cmake was run >&2; exit 1" >"'"$work"'/bin/cmake"; chmod +x "'"$work"'/bin/cmake" ;; esac'
}

dev() { PATH=$work/bin "$work/tree/dev" "$@" >"$work/out" 2>&1 </dev/null && echo 0 >"$work/rc" || echo $? >"$work/rc"; }

expect() {
  what=$1
  shift
  if ! "$@"; then
    echo "FAILED: $what" >&2
    sed 's/^/  | /' "$work/out" >&2
    failures=$((failures + 1))
  fi
}
exits() { [ "$(cat "$work/rc")" = "$1" ]; }
says() { grep -q -e "$1" "$work/out"; }
says_not() { ! says "$1"; }
told_apt() { [ -f "$work/apt.log" ] && grep -q -e "$1" "$work/apt.log"; }
told_apt_nothing() { [ ! -f "$work/apt.log" ]; }

machine 0
dev
expect "no command shows the help" exits 0
for command in demo test build lint sim gpu-test bench help; do
  expect "help names $command" says "^  $command "
done
dev mend
expect "an unknown command is an error" exits 1
expect "an unknown command is named" says 'no command mend'

machine 1000
fake_apt_get
dev build
expect "no root and no sudo is an error" exits 1
expect "what is missing is named with its reason" says 'g++: compiles Corral'
expect "the command to type is shown" says 'apt-get install --no-install-recommends .*g++'
expect "apt-get is not tried without root" told_apt_nothing

machine 0
dev build
expect "no apt-get is an error" exits 1
expect "no apt-get is the reason" says 'no apt-get; on Debian 12'
expect "what is missing is named" says 'g++: compiles Corral'

machine 0
fake_apt_get
dev build
expect "installing is announced" says 'installing:'
expect "lists are fetched" told_apt 'update'
expect "g++ is installed, without recommends" told_apt 'install --no-install-recommends.* g++'
expect "lint's tools are not installed for a build" says_not 'clang-tidy'
expect "the build goes on" says 'cmake was run'
rm "$work/apt.log"
# The libraries come from files that this machine has or not; the commands are all there now.
dev build
expect "commands that are there are not installed again" says_not 'g++: compiles'

machine 1000
fake_apt_get
# shellcheck disable=SC2016 # the fake expands it
fake sudo 'echo "sudo $*" >>"'"$work"'/sudo.log"; [ "$1" != -n ] || shift; exec "$@"'
dev build
expect "sudo is used" grep -q 'sudo -n apt-get' "$work/sudo.log"
expect "through sudo it installs" told_apt 'install .* g++'

machine 0
fake_apt_get
sed -i '2i case "$*" in *update*) exit 100 ;; esac' "$work/bin/apt-get"
dev build
expect "a failed update is said" says 'apt-get update failed'
expect "a failed update is no end" told_apt 'install .* g++'

machine 0
fake apt-get 'exit 100'
dev build
expect "a failed install is an error" exits 1
expect "a failed install names the packages" says 'could not install: .*g++'
expect "nothing is built then" says_not 'building'

if [ ! -e /proc/driver/nvidia/version ]; then
  machine 0
  fake_apt_get
  dev gpu-test
  expect "gpu-test without a GPU is an error" exits 1
  expect "gpu-test without a GPU says so" says 'no NVIDIA GPU'
  expect "gpu-test without a GPU installs nothing" told_apt_nothing
fi

machine 0
dev sim h200x2 true
expect "sim without -- is an error" exits 1
expect "sim without -- shows its use" says 'sim NAME -- CMD'
dev test --fast
expect "an unknown option is named" says 'no option --fast'

[ "$failures" = 0 ]
