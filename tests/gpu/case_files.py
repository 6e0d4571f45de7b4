# SPDX-License-Identifier: Apache-2.0
"""Reads what the scripts in cases/ say of themselves, and what they printed.

The head of a case is a list of fields in comments:
  Situation    what goes wrong, or what looks wrong and is not
  Intended     the GPU that its author meant
  Strays to    what it opens beside that
  Finding      the ids of the findings that `corral trace` gives for it, with commas between; or "none"
  With one GPU works, or ends with "TEXT": TEXT (a regular expression) is in its error output
  Adapted      FROM -> TO, optional: the change that a user would make to run it on one GPU
  Fix          what to write instead
The lines that end in `# CULPRIT` and `# CAUSE` are the ones a diagnosis must name.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

import process

FIELDS = ("Situation", "Intended", "Strays to", "Finding", "With one GPU", "Fix")


@dataclasses.dataclass
class Case:
    name: str
    path: pathlib.Path
    intended: str
    strays_to: str
    findings: list[str]
    fails_with: str | None  # None: works with one GPU
    adapted: tuple[str, str] | None
    culprit_lines: list[int]
    cause_lines: list[int]

    def expected(self) -> str:
        """What its author meant, as `corral trace --expect` takes it."""
        return "rank" if self.intended.startswith("rank") else self.intended.removeprefix("GPU ")

    def stray_gpus(self) -> list[int]:
        return [int(number) for number in re.findall(r"GPU (\d+)", self.strays_to)]

    def adapted_text(self) -> str:
        assert self.adapted is not None
        return self.path.read_text().replace(*self.adapted)


def marked(lines: list[str], mark: str) -> list[int]:
    return [number for number, line in enumerate(lines, 1) if line.endswith("# " + mark)]


def parse(name: str, path: pathlib.Path, text: str) -> Case:
    lines = text.splitlines()
    fields: dict[str, str] = {}
    for line in lines[1:]:
        if not line.startswith("# "):
            break
        if found := re.match(r"# ([A-Z][\w ]*): (.*)", line):
            fields[found[1]] = found[2].strip()
    if missing := [field for field in FIELDS if field not in fields]:
        raise ValueError(f"{path}: its head lacks {', '.join(missing)}")
    with_one = fields["With one GPU"]
    ends = re.fullmatch(r'ends with "(.+)"', with_one)
    if ends is None and with_one != "works":
        raise ValueError(f'{path}: With one GPU: {with_one}; wanted: works, or ends with "TEXT"')
    adapted = tuple(fields["Adapted"].split(" -> ")) if "Adapted" in fields else None
    if adapted is not None and (len(adapted) != 2 or not any(adapted[0] in line for line in code(lines))):
        raise ValueError(f"{path}: Adapted: {fields['Adapted']}; wanted: FROM -> TO, with FROM in the code")
    return Case(
        name,
        path,
        fields["Intended"],
        fields["Strays to"],
        [] if fields["Finding"] == "none" else fields["Finding"].split(", "),
        ends[1] if ends else None,
        adapted,
        marked(lines, "CULPRIT"),
        marked(lines, "CAUSE"),
    )


def code(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("#")]


def load_all() -> list[Case]:
    paths = sorted(path for path in process.CASES.glob("*.py") if not path.name.startswith("_"))
    return [parse(path.stem, path, path.read_text()) for path in paths]


def choose(cases: list[Case], names: str) -> list[Case]:
    if not names:
        return cases
    wanted = names.split(",")
    if unknown := set(wanted) - {case.name for case in cases}:
        raise SystemExit(f"--cases: no case {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in cases)}")
    return [case for case in cases if case.name in wanted]


def printed(stdout: str) -> list[dict]:
    """The `CASE` lines of a run, the ranks in order."""
    # Ranks write to one pipe, and two lines can come as one.
    decoder = json.JSONDecoder()
    lines = [decoder.raw_decode(stdout, at.end())[0] for at in re.finditer(r"CASE (?={)", stdout)]
    return sorted(lines, key=lambda line: line["role"])


def own_results(stdout: str) -> list:
    return [[line["role"], line["result"]] for line in printed(stdout) if line["result"] is not None]
