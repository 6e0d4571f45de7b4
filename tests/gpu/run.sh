#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests that need NVIDIA GPUs, root and a Python with torch; most parts need two GPUs.
#
#   tests/gpu/run.sh [PART…]     the parts are in `parts` below; default: all of them
#
# Each part writes a page of its numbers and its entry in results.json to $OUT, or to
# build/gpu-results. CORRAL names the program, build/release/corral otherwise. CORRAL_GPU_LIMIT_S is the time for all
# parts together; a part that has none left is a failure. Options for one part, as in its --help:
# RESNET_OPTIONS='--pairs 2' tests/gpu/run.sh resnet, and likewise for the others.
set -u

parts="holes launch frameworks cases resnet attribution overhead mps latency memory limits"

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
out=${OUT:-$root/build/gpu-results}
CORRAL=${CORRAL:-$root/build/release/corral}
export CORRAL OUT="$out" PYTHONDONTWRITEBYTECODE=1

die() {
  printf 'gpu-test: %s\n' "$*" >&2
  exit 2
}

# program and seconds of a part
part_program() {
  case $1 in
    holes) echo holes.py 150 ;;
    launch) echo launch_cost.py 120 ;;
    frameworks) echo frameworks.py 420 ;;
    cases) echo cases_confined.py 540 ;;
    resnet) echo resnet.py 560 ;;
    attribution) echo attribution.py 300 ;;
    overhead) echo overhead.py 420 ;;
    mps) echo mps.py 300 ;;
    latency) echo latency.py 280 ;;
    memory) echo memory.py 420 ;;
    limits) echo limits.py 180 ;;
    *) return 1 ;;
  esac
}

take_program() {
  program=$1
  limit=$2
}

part_options() {
  case $1 in
    holes) echo "${HOLES_OPTIONS:-}" ;;
    launch) echo "${LAUNCH_OPTIONS:-}" ;;
    frameworks) echo "${FRAMEWORKS_OPTIONS:-}" ;;
    cases) echo "${CASES_OPTIONS:-}" ;;
    resnet) echo "${RESNET_OPTIONS:-}" ;;
    attribution) echo "${ATTRIBUTION_OPTIONS:-}" ;;
    overhead) echo "${OVERHEAD_OPTIONS:-}" ;;
    mps) echo "${MPS_OPTIONS:-}" ;;
    latency) echo "${LATENCY_OPTIONS:-}" ;;
    memory) echo "${MEMORY_OPTIONS:-}" ;;
    limits) echo "${LIMITS_OPTIONS:-}" ;;
  esac
}

# shellcheck disable=SC2086  # words
[ $# -gt 0 ] || set -- $parts
for part in "$@"; do
  part_program "$part" >/dev/null || die "no part $part; there are: $parts"
done
[ -x "$CORRAL" ] || die "$CORRAL: not there or not executable; build it with ./dev build, or name it in CORRAL"
[ -e /proc/driver/nvidia/version ] || [ -n "${CORRAL_SIM:-}" ] || die "this machine has no NVIDIA driver"
mkdir -p "$out" || exit 2

began=$(date +%s)
for part in "$@"; do
  rm -f "$out/measured-$part.md"
  # shellcheck disable=SC2046  # two words
  take_program $(part_program "$part")
  if [ -n "${CORRAL_GPU_LIMIT_S:-}" ]; then
    left=$((CORRAL_GPU_LIMIT_S - ($(date +%s) - began)))
    [ "$left" -ge "$limit" ] || limit=$left
    [ "$limit" -gt 10 ] || {
      printf 'gpu-test: %s: not run, no time left\n' "$part" >&2
      continue
    }
  fi
  printf 'gpu-test: %s, at most %s s\n' "$part" "$limit" >&2
  # The part ends by itself a little before it would be ended.
  # shellcheck disable=SC2046  # options are words
  timeout -k 10 "$limit" python3 "$here/$program" --limit-s $((limit - 5)) $(part_options "$part")
done

python3 "$here/results.py" "$out" "$@"
