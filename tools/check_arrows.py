#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which folder of src/ may use which: the table, and the check that includes and targets keep to it.

An include "x/y.h" in a folder needs an arrow to x; the DEPENDS and target_link_libraries of a
folder's CMakeLists.txt may name corral_x only for those arrows, and must name (or reach) every
folder that its files include.
"""

import pathlib
import re
import sys

# A folder may include itself and these. An arrow that is not here does not exist: move the code
# instead of adding one.
ARROWS = {
    "base": set(),
    "host": {"base"},
    "gpu": {"base", "host"},
    "trace": {"base"},
    "snapshot": {"base", "host", "gpu", "trace"},
    "isolate": {"base", "host", "gpu"},
    "launch": {"base", "host", "isolate"},
    "power": {"base", "host", "gpu"},
    "mps": {"base", "host", "gpu", "isolate", "launch"},
    "sample": {"base", "host", "gpu", "snapshot"},
    "rules": {"base", "host", "gpu", "snapshot"},
    "report": {"base", "host", "gpu", "snapshot", "sample", "rules"},
    "cli": {"base", "host", "gpu", "trace", "snapshot", "isolate", "launch", "sample", "rules",
            "report", "power", "mps"},
    # The simulated machine stands in for the driver: it knows nothing of what it tests.
    "sim": {"base"},
    # Lives inside other people's processes: these headers, and no more (see SHIM_HEADERS).
    "shim": {"trace"},
}

# What the shim may include of ours, and what those headers may include in turn.
SHIM_HEADERS = {"trace/own_code.h", "trace/wire.h", "trace/writer.h"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
COMMENT = re.compile(r"#[^\n]*")
LINK_CALL = re.compile(r"\b(corral_folder|corral_program|target_link_libraries)\s*\(([^)]*)\)")
TARGET = re.compile(r"\bcorral_([a-z]+)\b")


def includes(path: pathlib.Path) -> list[str]:
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def closure(start: set[str], edges: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo.extend(edges.get(name, ()))
    return reached


def linked_folders(cmake: pathlib.Path, own: str) -> set[str]:
    text = COMMENT.sub("", cmake.read_text(encoding="utf-8"))
    found: set[str] = set()
    for _, arguments in LINK_CALL.findall(text):
        found.update(TARGET.findall(arguments))
    return (found & ARROWS.keys()) - {own}


def check(root: pathlib.Path) -> list[str]:
    problems: list[str] = []
    links: dict[str, set[str]] = {}
    used: dict[str, dict[str, str]] = {}  # folder -> folder it includes -> a file that does

    folders = sorted(p.name for p in (root / "src").iterdir() if p.is_dir())
    for name in folders:
        if name not in ARROWS:
            problems.append(f"src/{name}: a folder without arrows; give it a line in ARROWS")

    places = {name: root / "src" / name for name in folders if name in ARROWS}
    if (root / "sim").is_dir():
        places["sim"] = root / "sim"

    for name, place in places.items():
        used[name] = {}
        for path in sorted([*place.rglob("*.cc"), *place.rglob("*.h"), *place.rglob("*.c")]):
            shown = path.relative_to(root)
            for included in includes(path):
                other = included.split("/")[0]
                if other not in ARROWS or other == name or "/" not in included:
                    continue
                if other not in ARROWS[name]:
                    allowed = ", ".join(sorted(ARROWS[name])) or "nothing of ours"
                    problems.append(f'{shown}: includes "{included}"; {name} may use {allowed}')
                elif name == "shim" and included not in SHIM_HEADERS:
                    headers = " and ".join(sorted(SHIM_HEADERS))
                    problems.append(f'{shown}: includes "{included}"; shim may use only {headers}')
                else:
                    used[name].setdefault(other, str(shown))
        cmakes = sorted(place.rglob("CMakeLists.txt"))
        links[name] = set().union(*(linked_folders(cmake, name) for cmake in cmakes))
        for other in sorted(links[name] - ARROWS[name]):
            problems.append(f"{cmakes[0].relative_to(root)}: links corral_{other}; "
                            f"{name} has no arrow to {other}")

    for header in sorted(SHIM_HEADERS):
        path = root / "src" / header
        for included in includes(path) if path.exists() else []:
            if included not in SHIM_HEADERS:
                problems.append(f'src/{header}: includes "{included}"; it is part of the shim, '
                                "which may not")

    for name, others in used.items():
        if name == "shim":
            continue  # takes the headers, links nothing
        for other, file in sorted(others.items()):
            if other not in closure(links[name], links):
                problems.append(f"{file}: includes {other}/, but the target corral_{name} does not "
                                f"link corral_{other}; add it to DEPENDS")
    return problems


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    problems = check(root)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
