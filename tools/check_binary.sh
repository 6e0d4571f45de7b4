#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What our binaries ask of the machine they run on: check_binary.sh program|shim FILE.
# A program needs the C library alone, no newer than glibc 2.34; the shim needs libc and the link to
# the real driver in its own folder, and no C++ runtime.
set -eu

kind=$1
file=$2
case $kind in
  program) allowed='libc.so.6 libm.so.6 ld-linux-x86-64.so.2' newest=2.34 ;;
  shim) allowed='libc.so.6 ld-linux-x86-64.so.2 libcorral-driver.so' newest=2.34 ;;
  *)
    echo "usage: check_binary.sh program|shim FILE" >&2
    exit 64
    ;;
esac

status=0
fail() {
  echo "$file: $*" >&2
  status=1
}

needed=$(LC_ALL=C readelf -dW "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in $needed; do
  case " $allowed " in
    *" $library "*) ;;
    *) fail "needs $library; allowed: $allowed" ;;
  esac
done
case "$needed" in *libc.so.6*) ;; *) fail "does not need libc.so.6: is this the file to look at?" ;; esac
if [ "$kind" = shim ]; then
  case "$needed" in *libcorral-driver.so*) ;; *) fail "does not need libcorral-driver.so: the names it does not wrap would not be found" ;; esac
fi

versions=$(LC_ALL=C readelf -VW "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV)
highest=$(printf '%s\n' "$versions" | tail -n 1)
if [ "$(printf '%s\n%s\n' "$highest" "$newest" | sort -V | tail -n 1)" != "$newest" ]; then
  fail "wants GLIBC_$highest, at most GLIBC_$newest: $(LC_ALL=C readelf --dyn-syms -W "$file" | grep -o "[^ ]*@GLIBC_$highest" | tr '\n' ' ')"
fi
[ "$status" != 0 ] || echo "$file: needs $(echo "$needed" | tr '\n' ' '), newest symbol GLIBC_$highest"
exit "$status"
