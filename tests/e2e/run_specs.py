#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the end-to-end cases of one .spec file against the built corral.

A case is a few lines; a blank line ends it:

  NAME gives the job's own exit code
  RUN corral run --gpus none -- sh -c 'exit 7'
  EXIT 7
  STDOUT ^exact or regular expression of a line$
  STDERR regular expression that some line must match
  NOT regular expression that no line of stdout or stderr may match
  REQUIRES root landlock
  TIMEOUT 20

RUN goes to bash with corral, corral-sim and the test programs on PATH ($SIM is the simulated machine's command:
"$SIM h200x2 -- CMD"). EXIT is 0 when not given. STDOUT and STDERR may come several times. A case whose REQUIRES is
not met is skipped, or fails when CORRAL_MUST_WORK names what is missing. A failed case keeps its folder and prints
the command that repeats it.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from features import missing_features

SINGLE = {"NAME", "RUN", "EXIT", "REQUIRES", "TIMEOUT"}
SEVERAL = {"STDOUT", "STDERR", "NOT"}


class SpecError(Exception):
    pass


def parse(path):
    cases, case = [], {}
    with open(path, encoding="utf-8") as spec:
        lines = spec.read().splitlines() + [""]
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            if case:
                if "NAME" not in case or "RUN" not in case:
                    raise SpecError(f"{path}:{number}: a case needs NAME and RUN")
                cases.append(case)
                case = {}
            continue
        key, _, value = line.partition(" ")
        if key in SEVERAL:
            case.setdefault(key, []).append(value)
        elif key in SINGLE and key not in case:
            case[key] = value
        else:
            raise SpecError(f"{path}:{number}: unknown or repeated key {key!r}")
    return cases


def environment(build):
    env = {k: v for k, v in os.environ.items() if not k.startswith("CORRAL_") and k != "CUDA_VISIBLE_DEVICES"}
    env["PATH"] = os.pathsep.join([build, os.path.join(build, "sim"), os.path.join(build, "tests", "programs"),
                                   env["PATH"]])
    env["SIM"] = os.path.join(build, "sim", "corral-sim")
    env["TESTS"] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env["CORRAL_SIM_FAST"] = "1"
    return env


def matches(pattern, text):
    return any(re.search(pattern, line) for line in text.splitlines())


def faults(case, code, out, err):
    want = int(case.get("EXIT", "0"))
    if code != want:
        yield f"exit code {code}, wanted {want}"
    for key, text in (("STDOUT", out), ("STDERR", err)):
        for pattern in case.get(key, []):
            if not matches(pattern, text):
                yield f"{key} has no line that matches {pattern!r}"
    for pattern in case.get("NOT", []):
        if matches(pattern, out + "\n" + err):
            yield f"a line matches {pattern!r}"


def run_case(case, build):
    folder = tempfile.mkdtemp(prefix="corral-e2e-", dir="/var/tmp")
    timeout = float(case.get("TIMEOUT", "60"))
    process = subprocess.Popen(["bash", "-c", case["RUN"]], cwd=folder, env=environment(build),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    try:
        out, err = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        code = f"none after {timeout:g} s"
    out, err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
    found = list(faults(case, code, out, err))
    if found:
        print(f"FAILED {case['NAME']}")
        for fault in found:
            print(f"    {fault}")
        print(f"    repeat: cd {folder} && {case['RUN']}")
        for name, text in (("stdout", out), ("stderr", err)):
            print("".join(f"    {name}| {line}\n" for line in text.splitlines()[-25:]), end="")
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return True


def main():
    build, path = os.path.abspath(sys.argv[1]), sys.argv[2]
    passed = failed = skipped = 0
    for case in parse(path):
        lacking = missing_features(case.get("REQUIRES", "").split())
        if lacking:
            must = set(os.environ.get("CORRAL_MUST_WORK", "").split(",")) & set(lacking)
            print(f"{'FAILED' if must else 'skipped'} {case['NAME']}: this machine lacks {', '.join(lacking)}")
            failed, skipped = failed + bool(must), skipped + (not must)
        elif run_case(case, build):
            print(f"ok {case['NAME']}")
            passed += 1
        else:
            failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    if failed:
        sys.exit(1)
    if not passed:
        sys.exit(77)


if __name__ == "__main__":
    main()
