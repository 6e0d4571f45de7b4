#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a context event costs with the stacks of a Python program, on a driver that does nothing.
root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
exec python3 "$root/bench/hook/stack_cost.py" "$root/build/bench" "$@"
