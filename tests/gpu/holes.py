#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ways to a refused GPU on the real node: each seen to work without Corral, each tried under it.

Also what ordinary programs then see: nvidia-smi and torch list one GPU, the allowed node opens, and
an ordinary user gets the same from Landlock.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import confined
import nvml
import process
import results

METHODS = ("cgroup", "landlock", "mount", "tight")
NOBODY = 65534
COUNT = "import torch; print(torch.cuda.device_count())"

# A cgroup alone does not hinder these, and does not promise to: the device program also judges what
# an io_uring opens, and root may leave its cgroup, which the report has to name.
ALLOWED_UNDER = {
    "cgroup": {"io_uring_setup", "left the cgroup"},
    "landlock": set(),
    "mount": {"io_uring_setup"},  # it opens by name, and the name is covered
    "tight": set(),
}


class Prober:
    def __init__(self, part: results.Part, gpus: nvml.Nvml) -> None:
        self.part = part
        self.nvml = gpus
        self.node = gpus.gpus[0].node()
        self.open_node = gpus.gpus[-1].node()
        self.last = gpus.gpus[-1].index
        self.answers: dict[str, dict[str, str]] = {}
        self.reports: dict[str, dict] = {}

    def tried(self, node: str, method: str | None) -> tuple[process.Ended, dict[str, str], dict | None]:
        """The answers of open_ways.py, with a descriptor of the node handed down, also as stdin."""
        descriptor = os.open(node, os.O_RDWR)
        try:
            command = [sys.executable, str(process.PROGRAMS / "open_ways.py"), node, str(descriptor), str(os.stat(node).st_rdev)]
            more = {"limit_s": 30, "env": process.clean_environment(), "pass_fds": (descriptor,), "stdin": descriptor}
            if method is None:
                ended, report = process.run(command, **more), None
            else:
                options = ["--gpus", str(self.last), *confined.method_options(method)]
                run = confined.run(options, command, **more)
                ended, report = run.ended, run.report
        finally:
            os.close(descriptor)
        try:
            return ended, json.loads(ended.stdout), report
        except ValueError:
            return ended, {}, report

    def unconfined(self) -> None:
        ended, answers, _ = self.tried(self.node, None)
        self.answers["none"] = answers
        self.part.check("unconfined: the ways were tried", bool(answers), " / ".join(ended.tail()))
        for mode in ("r", "w", "rw", "3"):
            for call in ("open", "openat", "openat2"):
                way = f"{call} {mode}"
                self.part.check(f"unconfined: {way} works", answers.get(way) == "open", str(answers.get(way)))

    def under(self, method: str) -> None:
        ended, answers, report = self.tried(self.node, method)
        self.answers[method] = answers
        self.reports[method] = report or {}
        detail = f"exit {ended.shell_code()}: {' / '.join(ended.tail())}"
        if not self.part.check(f"{method}: the ways were tried", bool(answers), detail):
            return
        problem = confined.wrong_layers(report, method) if report else "no report"
        self.part.check(f"{method}: is what holds", problem is None, problem or "")
        for way, answer in answers.items():
            if way in ALLOWED_UNDER[method]:
                continue
            self.part.check(f"{method}: {way} is refused", answer != "open", answer)
        if answers.get("left the cgroup") == "open":
            said = report or {}
            named = " / ".join(said.get("general_limits", []))
            self.part.check(f"{method}: leaving the cgroup as root is named as not covered", "could leave its cgroup" in named, named)
        _, allowed, _ = self.tried(self.open_node, method)
        for way in ("open r", "open rw"):
            self.part.check(f"{method}: {way} of the allowed node works", allowed.get(way) == "open", str(allowed))

    def counts(self, method: str | None) -> list:
        """How many GPUs nvidia-smi and torch find."""
        wanted = len(self.nvml.gpus) if method is None else 1
        found = []
        smi = shutil.which("nvidia-smi")
        commands = {"torch": [sys.executable, "-c", COUNT], "nvidia-smi": [smi, "-L"] if smi else None}
        for name, command in commands.items():
            if command is None:
                found.append(None)
                continue
            prefix = []
            if method is not None:
                options = ["--gpus", str(self.last), *confined.method_options(method), "-q"]
                prefix = [str(process.corral_path()), "run", *options, "--"]
            ended = process.run([*prefix, *command], limit_s=60, env=process.clean_environment())
            lines = ended.stdout.split("\n")
            count = sum(line.startswith("GPU ") for line in lines) if name == "nvidia-smi" else lines[0].strip()
            detail = f"{count}, exit {ended.shell_code()} {' / '.join(ended.tail(2))}"
            right = ended.code == 0 and str(count) == str(wanted)
            self.part.check(f"{method or 'unconfined'}: {name} finds {wanted} GPUs", right, detail)
            found.append(count)
        return found


def as_nobody(part: results.Part, last: int) -> str:
    """Landlock as an ordinary user: no capability, no cgroup of its own, a home that it owns."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = pathlib.Path(folder, "home")
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        env = process.clean_environment(HOME=str(home), TMPDIR=str(home))
        for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
            env.pop(name, None)
        corral = process.corral_path()
        reachable = subprocess.run([*drop, "test", "-x", str(corral)], env=env, timeout=10, check=False).returncode == 0
        if not reachable:
            corral = installed_copy(corral, pathlib.Path(folder, "corral"))
        options = ["run", "--gpus", str(last), "--enforce", "landlock", "-v"]
        command = [*drop, str(corral), *options, "--", sys.executable, "-c", COUNT]
        ended = process.run(command, limit_s=60, env=env, cwd=home)
        shown = ended.stdout.strip()
        detail = f"printed {shown!r}, exit {ended.shell_code()}: {' / '.join(ended.tail())}"
        part.check("user nobody: landlock, torch finds one GPU", ended.code == 0 and shown == "1", detail)
        return "\n".join(line for line in ended.stderr.splitlines() if line.strip()).replace(folder, "HOME")


def through_the_control_node(part: results.Part, gpus: nvml.Nvml) -> None:
    """What the driver gives through /dev/nvidiactl, which every job may open: devices of open nodes only."""
    last, rows = str(gpus.gpus[-1].index), []
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = f"{folder}/rm_ways"
        subprocess.run(["gcc", "-O2", "-o", program, str(process.PROGRAMS / "rm_ways.c")], check=True, timeout=60)
        runs = [("unconfined, no node opened", [program], 0), ("unconfined", [program, "--open"], len(gpus.gpus))]
        for method in METHODS:
            argv = [str(process.corral_path()), "run", "-q", "--no-observe", "--gpus", last]
            runs.append((method, [*argv, *confined.method_options(method), "--", program, "--open"], 1))
        for name, argv, opened in runs:
            ended = process.run(argv, limit_s=30, env=process.clean_environment())
            try:
                said = json.loads(ended.stdout)
            except ValueError:
                part.check(f"control node, {name}: asked", False, " / ".join(ended.tail(2)))
                continue
            had = said["devices"].count(0)
            part.check(f"control node, {name}: {opened} nodes open, {opened} devices had",
                       (said["opened"], had) == (opened, opened), ended.stdout)  # fmt: skip
            statuses = ", ".join("had" if status == 0 else f"0x{status:x}" for status in said["devices"])
            rows.append([name, said["opened"], "yes" if said["attached"] else "no", statuses])
    part.section(
        "## What the driver gives through /dev/nvidiactl\n\nThat node is open to every job. NV_ESC_ATTACH_GPUS_TO_FD of all "
        "GPUs, then a device (class 0x80) of each of the driver's instances. 0x1b: insufficient permissions. Attached GPUs "
        "are kept awake, without a context or memory.\n\n"
        + results.table(["method", "nodes opened", "attached", "devices"], rows)
    )


def installed_copy(corral: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """The build folder may lie where only root can read. What `corral` finds beside itself comes along."""
    target.mkdir()
    copy = target / corral.name
    shutil.copy2(corral, copy)
    for library in corral.parent.glob("**/*.so*"):
        place = target / library.relative_to(corral.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, place)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755)
    return copy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=150)
    arguments = parser.parse_args()
    gpus = nvml.two_gpus()
    if os.geteuid() != 0:
        raise SystemExit("root is needed: the cgroup method, second nodes and mounts")
    with results.Part("holes", "Ways to a refused GPU, on the real node", arguments.limit_s, gpus) as part:
        prober = Prober(part, gpus)
        counts, said_to_nobody = {}, ""
        try:
            prober.unconfined()
            for method in METHODS:
                if part.has_time_for(10, f"{method}: the ways"):
                    prober.under(method)
            for method in (None, *METHODS):
                if part.has_time_for(10, f"{method or 'unconfined'}: counting GPUs"):
                    counts[method or "none"] = prober.counts(method)
            if part.has_time_for(10, "the control node"):
                through_the_control_node(part, gpus)
            if part.has_time_for(10, "user nobody: landlock"):
                said_to_nobody = as_nobody(part, prober.last)
        finally:
            describe(part, prober, counts, said_to_nobody)
    return part.exit_code()


def describe(part: results.Part, prober: Prober, counts: dict, said_to_nobody: str) -> None:
    columns = ["none", *METHODS]
    rows = [[way, *[prober.answers.get(c, {}).get(way) for c in columns]] for way in prober.answers.get("none", {})]
    seen = [[c, *counts[c]] for c in columns if c in counts]
    part.section(
        f"## Ways to {prober.node}\n\nUnder `corral run --gpus {prober.last}`, as root; `open` means that a descriptor "
        "of the node was had, otherwise the error. For io_uring `open` means that a ring was set up.\n\n"
        + results.table(["way", "unconfined", *METHODS], rows)
    )
    part.section("## GPUs that programs find\n\n" + results.table(["method", "torch", "nvidia-smi -L"], seen))
    held = [[m, prober.reports[m].get("enforced"), ", ".join(prober.reports[m].get("layers", [])),
             " / ".join(prober.reports[m].get("not_covered", []))] for m in METHODS if m in prober.reports]  # fmt: skip
    part.section("## What Corral says held\n\n" + results.table(["method", "enforced", "layers", "not covered"], held))
    if said_to_nobody:
        part.section("## What user nobody was told\n\n```\n" + said_to_nobody + "\n```")
    never = [way for way, answer in prober.answers.get("none", {}).items() if answer != "open"]
    if never:
        part.does_not_show("not shown by this run, since it fails here without Corral too: " + ", ".join(never))
    part.does_not_show("opens through a ring, 32-bit system calls, ptrace and descriptors passed by others: these are "
                       "tried on dummy nodes by tests/escape")  # fmt: skip
    part.does_not_show("MPS, containers, MIG")
    part.data.update(answers=prober.answers, counts=counts, reports=prober.reports)


if __name__ == "__main__":
    sys.exit(main())
