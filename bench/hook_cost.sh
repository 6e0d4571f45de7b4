#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the shim adds to a call, on a driver that does nothing.
root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
exec python3 "$root/bench/hook/hook_cost.py" "$root/build/bench" "$@"
