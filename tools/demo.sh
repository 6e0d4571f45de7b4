#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ./dev demo shows: a job that strays onto GPU 0, the same job confined, and what holds it. ./dev runs it
# on the machine's own GPUs, or on a simulated machine.
set -eu
cd "$(dirname -- "$0")/.."

job='python3 tests/programs/overrides_variable.py'
node=${CORRAL_SIM:-}/dev/nvidia0

export HOLD_S=2 # long enough for the samples to show what a context costs

exec 2>&1 # the verdicts belong between the headings, wherever the output goes
bold='' plain=''
[ ! -t 1 ] || bold=$(printf '\033[1m') plain=$(printf '\033[0m')

# Says what it does, shows the command and runs it; a job's own failure is part of the show.
show() {
  printf '\n%s# %s%s\n$ %s\n' "$bold" "$1" "$plain" "$2"
  status=0
  sh -c "PATH=build/release:\$PATH; $2" || status=$?
  [ "$status" = 0 ] || printf '(exit %s)\n' "$status"
}

show 'The job is given GPU 1 by CUDA_VISIBLE_DEVICES alone. It sets its own value, and strays.' \
  "corral run --gpus 1 --enforce env -- $job"
sleep 3
show 'The same job, confined: the kernel refuses it GPU 0.' \
  "corral run --gpus 1 -- $job"
show 'What holds it, without starting anything.' \
  "corral run --gpus 1 --dry-run -- $job"
show 'No process of the job can open the node, whatever it is.' \
  "corral run -q --gpus 1 -- sh -c ': <$node'"
sleep 3
show 'Another job, unchanged and only watched, on a stand-in for PyTorch: who strays, at which line, and why?' \
  'corral trace --expect 1 -- python3 tests/programs/stray_by_call.py late'
