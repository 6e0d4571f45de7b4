# SPDX-License-Identifier: Apache-2.0
"""What a part of the hardware tests found: its checks, its page and its entry in results.json."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shlex
import signal
import sys
import time

import nvml
import process


@dataclasses.dataclass
class Check:
    what: str
    passed: bool
    detail: str = ""


class Part:
    """One part. Used as a context manager: the page is written whatever happens inside."""

    def __init__(self, name: str, title: str, limit_s: float, gpus: nvml.Nvml | None = None) -> None:
        self.name = name
        self.title = title
        self.checks: list[Check] = []
        self.data: dict = {}
        self._nvml = gpus
        self._corral = corral_version()  # first of all: without the program there is nothing to test
        self._sections: list[str] = []
        self._not_shown: list[str] = []
        self._began = time.monotonic()
        self._deadline = self._began + limit_s
        self.folder = pathlib.Path(os.environ.get("OUT") or process.TREE / "build/gpu-results")
        self.folder.mkdir(parents=True, exist_ok=True)

    def check(self, what: str, passed: bool, detail: str = "") -> bool:
        self.checks.append(Check(what, bool(passed), detail))
        if not passed:
            print(f"FAILED {what}{': ' + detail if detail else ''}", flush=True)
        return bool(passed)

    def left_s(self) -> float:
        return self._deadline - time.monotonic()

    def has_time_for(self, seconds: float, what: str) -> bool:
        """What is not run for lack of time is a failed check, never silence."""
        if self.left_s() >= seconds:
            return True
        self.check(what, False, f"not run: {max(self.left_s(), 0):.0f} s left of the part's time")
        return False

    def section(self, text: str) -> None:
        self._sections.append(text.strip("\n"))

    def does_not_show(self, text: str) -> None:
        self._not_shown.append(text)

    def __enter__(self) -> Part:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM: the part's time is over"))
        return self

    def __exit__(self, kind, value, _) -> None:
        if kind is not None:
            self.check("the part ran to its end", False, f"{kind.__name__}: {value}")
        self._write()

    def totals(self) -> tuple[int, int]:
        passed = sum(check.passed for check in self.checks)
        return passed, len(self.checks) - passed

    def verdict(self) -> str:
        passed, failed = self.totals()
        return f"{passed} passed, {failed} failed"

    def exit_code(self) -> int:
        print(self.verdict(), flush=True)
        return 1 if self.totals()[1] or not self.checks else 0

    def _header(self) -> list[str]:
        rows = [("date", datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))]
        if self._nvml is not None:
            gpus = [f"{gpu.index}: {gpu.name} at {gpu.pci}" for gpu in self._nvml.gpus]
            rows += [("GPUs", "; ".join(gpus)), ("driver", self._nvml.driver_version())]
        if os.environ.get("CORRAL_SIM"):
            rows.append(("machine", "**SIMULATED**: no figure here is a measurement of hardware"))
        rows += [
            ("kernel", platform.release()),
            ("system", system_name()),
            ("corral", self._corral),
            ("command", "`" + shlex.join(["python3", *command_line()]) + "`"),
            ("took", f"{time.monotonic() - self._began:.0f} s"),
        ]
        return ["| | |", "| --- | --- |", *[f"| {name} | {value} |" for name, value in rows]]

    def _write(self) -> None:
        failures = [f"* {check.what}: {check.detail}" for check in self.checks if not check.passed]
        page = [f"# {self.title}", "", *self._header(), ""]
        for section in self._sections:
            page += [section, ""]
        page += ["## Checks", "", self.verdict() + ("; failed:" if failures else "."), ""]
        if failures:
            page += [*failures, ""]
        page += ["## What it does not show", "", *[f"* {text}" for text in self._not_shown], ""]
        (self.folder / f"measured-{self.name}.md").write_text("\n".join(page), encoding="utf-8")

        passed, failed = self.totals()
        entry = {
            "passed": passed,
            "failed": failed,
            "checks": [dataclasses.asdict(check) for check in self.checks],
            **self.data,
        }
        everything = read_all(self.folder)
        everything[self.name] = entry
        text = json.dumps(everything, indent=1, ensure_ascii=False)
        (self.folder / "results.json").write_text(text + "\n", encoding="utf-8")


def table(head: list[str], rows: list[list]) -> str:
    def cell(value) -> str:
        text = "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
        return text.replace("|", "\\|").replace("\n", " ")

    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows])


def command_line() -> list[str]:
    """This program's own command, as one types it in the root of the tree."""
    program = pathlib.Path(sys.argv[0]).resolve()
    relative = program.relative_to(process.TREE) if program.is_relative_to(process.TREE) else program
    return [str(relative), *sys.argv[1:]]


def system_name() -> str:
    try:
        lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    except OSError:
        return platform.system()
    return next((line.split("=", 1)[1].strip('"') for line in lines if line.startswith("PRETTY_NAME=")), "Linux")


def corral_version() -> str:
    ended = process.run([str(process.corral_path()), "--version"], limit_s=10)
    return ended.stdout.strip().splitlines()[0] if ended.code == 0 and ended.stdout.strip() else "?"


def read_all(folder: pathlib.Path) -> dict:
    try:
        return json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def main() -> int:
    """Adds up the named parts; one that left no results counts as a failure."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("parts", nargs="+")
    arguments = parser.parse_args()
    everything = read_all(arguments.folder)
    passed = failed = 0
    for name in arguments.parts:
        part = everything.get(name)
        written = (arguments.folder / f"measured-{name}.md").exists()  # an older entry does not count
        if part is None or not written or not part["passed"] + part["failed"]:
            print(f"{name}: no results")
            failed += 1
            continue
        print(f"{name}: {part['passed']} passed, {part['failed']} failed")
        passed, failed = passed + part["passed"], failed + part["failed"]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
