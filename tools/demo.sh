#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ./dev demo shows: a job that strays onto GPU 0, then the same job confined. ./dev runs it on the
# machine's own GPUs, or on a simulated machine.
set -eu
cd "$(dirname -- "$0")/.."

job='python3 tests/programs/stray_default_device.py'

# Says what it does, shows the command and runs it; a job's own failure is part of the show.
show() {
  printf '\n\033[1m# %s\033[0m\n$ %s\n' "$1" "$2"
  status=0
  sh -c "PATH=build/release:\$PATH; $2" || status=$?
  [ "$status" = 0 ] || printf '(exit %s)\n' "$status"
}

show 'The job is told to use GPU 1, but nothing holds it there: it strays.' \
  "corral run --gpus 1 --enforce env --allow-unenforced -- $job"
show 'The same job, confined: GPU 0 cannot be opened.' \
  "corral run --gpus 1 -- $job"
