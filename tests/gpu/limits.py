#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Limits beside a GPU on real cgroup v2: held, said and gone afterwards, as root and as an ordinary user.

Nothing here uses a GPU: one is named so that `auto` has a NUMA node to find.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import confined
import nvml
import process
import results

ONE_LIMIT_S = 40
NOBODY = 65534
MEMORY = 2 << 30
PIDS = 64

# What a job sees of its own limits.
SHOW = """
import json, os, pathlib
group = next(l[3:] for l in open("/proc/self/cgroup").read().splitlines() if l.startswith("0::"))
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines() if ":" in l)
print(json.dumps({"group": group, "affinity": sorted(os.sched_getaffinity(0)),
                  "mems": status["Mems_allowed_list"].strip()}))
"""
EAT = """
memory = bytearray(3 << 30)
for at in range(0, 3 << 30, 4096): memory[at] = 1
print("ate all")
"""
FORKS = """
import os, time
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(2)
            os._exit(0)
        made += 1
except OSError as error:
    print(made, error.errno)
"""


def numbers(text: str) -> list[int]:
    """0-2,5 -> [0, 1, 2, 5]"""
    out: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        out.extend(range(int(first), int(last or first) + 1))
    return sorted(out)


def node_cpus(gpu: nvml.Gpu) -> list[int]:
    """The CPUs of the GPU's NUMA node by /sys, of those that this process may run on."""
    nodes = sorted(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))
    number = int(pathlib.Path("/sys/bus/pci/devices", gpu.pci, "numa_node").read_text())
    folder = nodes[0] if number < 0 and len(nodes) == 1 else pathlib.Path(f"/sys/devices/system/node/node{number}")
    return sorted(set(numbers((folder / "cpulist").read_text())) & os.sched_getaffinity(0))


def v2_mount() -> pathlib.Path | None:
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        words = line.split()
        if words[2] == "cgroup2":
            return pathlib.Path(words[1])
    return None


def groups(mount: pathlib.Path) -> list[str]:
    return sorted(str(path) for path in mount.rglob("corral-*") if path.is_dir())


def run_as_root(options: list[str], program: str) -> confined.Confined:
    return confined.run(options, ["python3", "-c", program], limit_s=ONE_LIMIT_S, env=process.clean_environment())


def limit_of(run: confined.Confined, name: str) -> dict:
    return (run.report or {}).get("limits", {}).get(name, {})


def notes_of(run: confined.Confined) -> str:
    return " / ".join((run.report or {}).get("notes", []))


def held_by(run: confined.Confined, name: str) -> str:
    return limit_of(run, name).get("held_by") or "nothing"


def own_group(mount: pathlib.Path) -> str:
    """This process's group on v2, as a path below the mount."""
    lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


@contextlib.contextmanager
def below_the_root(mount: pathlib.Path):
    """Puts this process into a group with no limit above it, as a service's is, and back again."""
    before = mount / own_group(mount).lstrip("/")
    group = mount / f"limits-root-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def as_found(part: results.Part, mount: pathlib.Path) -> None:
    """Where the tests were started: what cannot be held there is refused with the reason."""
    run = run_as_root(["--pids", str(PIDS)], "print('started')")
    held = held_by(run, "pids").startswith("cgroup")
    reason = " ".join(line.strip() for line in run.ended.stderr.splitlines())
    refused = run.ended.code == 125 and "--pids cannot be held here" in reason and "started" not in run.ended.stdout
    part.check("as found: --pids is held, or refused with the reason", held or refused, reason)
    part.section("## Where the tests were started\n\n`corral run --pids 64` in `" + own_group(mount) + "`:\n\n> "
                 + (held_by(run, "pids") if held else reason))  # fmt: skip


def check_values(part: results.Part, gpu: nvml.Gpu, mount: pathlib.Path) -> None:
    options = ["--gpus", str(gpu.index), "--cpus", "auto", "--mems", "auto"]
    options += ["--memory", str(MEMORY), "--pids", str(PIDS)]
    run = run_as_root(options, SHOW + 'folder = pathlib.Path("%s" + group)\n' % mount + (
        'print(json.dumps({n: (folder / n).read_text().strip() for n in ("memory.max", "pids.max", "cpuset.cpus")}))'
    ))
    detail = f"exit {run.ended.shell_code()}: {' / '.join(run.ended.tail())}"
    if not part.check("root: a job with all limits runs", run.ended.code == 0 and run.report is not None, detail):
        return
    seen, files = (json.loads(line) for line in run.ended.stdout.splitlines()[:2])
    part.data["all"] = {"seen": seen, "files": files, "limits": run.report["limits"], "notes": run.report["notes"]}
    for name in ("cpus", "mems", "memory", "pids"):
        part.check(f"root: {name} is held by cgroup v2", held_by(run, name).startswith("cgroup v2"), held_by(run, name))
    expected = node_cpus(gpu)
    part.check("root: the CPUs are those of the GPU's node", seen["affinity"] == expected, f"{seen['affinity']}")
    said = numbers(limit_of(run, "cpus").get("list", ""))
    part.check("root: the report says the same CPUs", said == expected, f"{said}")
    part.check("root: memory.max is the limit", files["memory.max"] == str(MEMORY), files["memory.max"])
    part.check("root: pids.max is the limit", files["pids.max"] == str(PIDS), files["pids.max"])
    part.check("root: no group is left", not groups(mount), f"{groups(mount)}")


def check_held(part: results.Part, mount: pathlib.Path) -> None:
    run = run_as_root(["--memory", "2G"], EAT)
    part.check("root: 3 GiB under --memory 2G are killed", run.ended.shell_code() == 137, f"{run.ended.shell_code()}")
    said = "reached its limit (memory 2048 MiB)" in notes_of(run)
    part.check("root: the verdict says why", said, notes_of(run))
    run = run_as_root(["--memory", "4G"], EAT)
    part.check("root: the same under --memory 4G is not", "ate all" in run.ended.stdout, " / ".join(run.ended.tail()))
    run = run_as_root(["--pids", str(PIDS)], FORKS)
    made = run.ended.stdout.split()
    part.check(f"root: a fork bomb ends at {PIDS}", made[:1] == [str(PIDS - 1)], run.ended.stdout.strip())
    part.check("root: the verdict says so", "reached its limit (at most 64" in notes_of(run), notes_of(run))
    part.check("root: no group is left by them", not groups(mount), f"{groups(mount)}")


def check_killed(part: results.Part, mount: pathlib.Path) -> None:
    corral = str(process.corral_path())
    run = subprocess.Popen(
        [corral, "run", "-q", "--pids", "50", "--", "sleep", "60"], start_new_session=True, stdin=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 10
    while not groups(mount) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    part.check("kill -9: there was a group", bool(groups(mount)))
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    process.end_session(run.pid)
    time.sleep(0.3)
    left = groups(mount)
    again = process.run([corral, "run", "-q", "--pids", "50", "--", "true"], limit_s=ONE_LIMIT_S)
    detail = f"left by the kill: {left}; now: {groups(mount)}; {again.stderr.strip()}"
    part.check("kill -9: the next start removes what was left", again.code == 0 and not groups(mount), detail)


def as_nobody(argv: list[str]) -> list[str]:
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *argv]


def check_user(part: results.Part, folder: pathlib.Path) -> None:
    corral = str(folder / "corral")
    cpu = str(min(os.sched_getaffinity(0)))
    argv = as_nobody([corral, "run", "--cpus", cpu, "--mems", "0", "--", "python3", "-c", SHOW])
    run = process.run(argv, limit_s=ONE_LIMIT_S, env=process.clean_environment(HOME=str(folder)), cwd=folder)
    ran = run.code == 0 and json.loads(run.stdout.splitlines()[0])["affinity"] == [int(cpu)]
    part.check("user: CPUs are held by affinity", ran and "by affinity: the job can change it" in run.stderr, run.stderr)
    part.check("user: memory nodes are held by policy", "by memory policy" in run.stderr, run.stderr)
    argv = as_nobody([corral, "run", "--memory", "1G", "--", "echo", "started"])
    run = process.run(argv, limit_s=ONE_LIMIT_S, env=process.clean_environment(HOME=str(folder)), cwd=folder)
    refused = run.code == 125 and "--memory cannot be held here" in run.stderr and "started" not in run.stdout
    part.check("user: a memory limit that nothing holds is refused", refused, f"exit {run.code}: {run.stderr}")


def delegate(mount: pathlib.Path) -> pathlib.Path:
    """A group of nobody's, as an administrator makes one."""
    (mount / "cgroup.subtree_control").write_text("+memory +pids")
    group = mount / f"limits-check-{os.getpid()}"
    group.mkdir()
    for name in ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
        os.chown(group / name if name else group, NOBODY, NOBODY)
    return group


def check_delegated(part: results.Part, mount: pathlib.Path, folder: pathlib.Path) -> None:
    try:
        group = delegate(mount)
    except OSError as error:
        part.check("delegated: a group could be made", False, str(error))
        return
    report = folder / "delegated.json"
    try:
        for options, program, code, note in (
            (["--memory", "2G"], EAT, 137, "reached its limit (memory 2048 MiB)"),
            (["--pids", str(PIDS)], FORKS, 0, "reached its limit (at most 64"),
        ):
            job = as_nobody([str(folder / "corral"), "run", "--report", str(report), *options, "--", "python3", "-c", program])
            argv = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *job]
            env = process.clean_environment(HOME=str(folder))
            ended = process.run(argv, limit_s=ONE_LIMIT_S, env=env, cwd=folder)
            found = json.loads(report.read_text()) if report.exists() else {}
            run = confined.Confined(ended, found)
            report.unlink(missing_ok=True)
            name = "memory" if "--memory" in options else "pids"
            part.check(f"delegated: {name} is held by cgroup v2", held_by(run, name).startswith("cgroup v2"), ended.stderr)
            ran_so = ended.shell_code() == code and note in notes_of(run)
            part.check(f"delegated: {name} holds and is said", ran_so, f"exit {ended.shell_code()}: {notes_of(run)}")
            control = (group / "cgroup.subtree_control").read_text().strip()
            left = sorted(path.name for path in group.iterdir() if path.is_dir())
            part.check(f"delegated: after {name} the group is as it was", not control and not left, f"{control} {left}")
    finally:
        for path in [*(path for path in group.iterdir() if path.is_dir()), group]:
            path.rmdir()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=180)
    arguments = parser.parse_args()
    gpus = nvml.Nvml()
    with results.Part("limits", "Limits beside the GPU", arguments.limit_s, gpus) as part, (
        tempfile.TemporaryDirectory()
    ) as name:
        folder = pathlib.Path(name)
        folder.chmod(0o777)
        shutil.copy(process.corral_path(), folder / "corral")
        (folder / "corral").chmod(0o755)
        mount = v2_mount()
        if part.check("cgroup v2 is mounted", mount is not None):
            as_found(part, mount)
            with below_the_root(mount):
                check_values(part, gpus.gpus[-1], mount)
                for what, seconds, check in (
                    ("held limits", 60, lambda: check_held(part, mount)),
                    ("after a kill", 30, lambda: check_killed(part, mount)),
                    ("an ordinary user", 20, lambda: check_user(part, folder)),
                    ("a delegated group", 40, lambda: check_delegated(part, mount, folder)),
                ):
                    if part.has_time_for(seconds, what):
                        check()
        rows = [[check.what, "yes" if check.passed else f"**no**: {check.detail}"] for check in part.checks]
        part.section("## What held\n\n" + results.table(["check", "held"], rows))
        part.does_not_show("a scope of systemd: this machine has none")
    return part.exit_code()


if __name__ == "__main__":
    sys.exit(main())
