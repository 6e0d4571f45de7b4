#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every file of the tree must keep to, whatever language it is in.

The licence line at the head of source files; no path or host of the machine it was written on; no
comment that cites a file of ours that does not exist; no file of code above 600 lines.
"""

import pathlib
import re
import subprocess
import sys

MAX_LINES = 600
SOURCE_SUFFIXES = {".cc", ".h", ".c", ".py", ".sh", ".cmake", ".def"}
SOURCE_NAMES = {"CMakeLists.txt", "dev", "run", ".clang-tidy"}

# Folders whose files are data: captured texts keep whatever their machine wrote.
DATA = ("tests/fixtures/", "tests/fuzz/corpus/")

# A developer's own folders, and where packages come from. Written in pieces so that this file keeps
# to its own rule.
FORBIDDEN = [
    (re.compile(r"(?<![\w.~}])/(?:work|root)/(?!\.\.\.)"), "a path of one developer's machine"),
    (re.compile(r"\b(?:deb|security|snapshot|ftp)\.debian\." + r"org\b"), "a package registry's host"),
    (re.compile(r"\b(?:registry\.npmjs|pypi|files\.pythonhosted|crates|proxy\.golang)\." + r"(?:org|io)\b"),
     "a package registry's host"),
]

COMMENT = {
    ".cc": re.compile(r"//(.*)"), ".h": re.compile(r"//(.*)"), ".c": re.compile(r"//(.*)"),
    ".py": re.compile(r"# (.*)"), ".sh": re.compile(r"# (.*)"), ".cmake": re.compile(r"# (.*)"),
    ".txt": re.compile(r"# (.*)"),
}
# A file as a comment cites it: with a folder of ours before it, or a document by its bare name.
CITED = re.compile(r"(?<![\w./<$}*-])((?:[\w.-]+/)+[\w.-]+\.(?:cc|h|c|py|sh|md|cmake|def|txt|json)|[\w-]+\.md)\b")


def tracked(root: pathlib.Path) -> list[str]:
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z", "--cached",
         "--others", "--exclude-standard", "--deduplicate"],
        check=True, capture_output=True, text=True)
    return [name for name in listing.stdout.split("\0") if name and (root / name).is_file()]


def is_source(name: str) -> bool:
    path = pathlib.PurePath(name)
    return path.suffix in SOURCE_SUFFIXES or path.name in SOURCE_NAMES


def check_citations(root: pathlib.Path, name: str, text: str) -> list[str]:
    comment = COMMENT.get(pathlib.PurePath(name).suffix)
    if comment is None:
        return []
    ours = {p.name for p in root.iterdir() if p.is_dir()} - {"build"}
    ours |= {p.name for p in (root / "src").iterdir() if p.is_dir()} if (root / "src").is_dir() else set()
    bases = [root, root / "src", root / "docs", (root / name).parent]
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        for said in comment.findall(line):
            for cited in CITED.findall(said):
                if "/" in cited and cited.split("/")[0] not in ours:
                    continue  # a system header, an example
                if "/" in cited and any(part.isupper() for part in re.split(r"[/.]", cited)):
                    continue  # a place for a name: tests/fuzz/FOLDER/NAME.cc
                if not any((base / cited).exists() for base in bases):
                    problems.append(f"{name}:{number}: cites {cited}, which does not exist")
    return problems


def check_file(root: pathlib.Path, name: str) -> list[str]:
    problems = []
    try:
        text = (root / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return [] if name.startswith(DATA) else [f"{name}: not UTF-8 text"]
    lines = text.splitlines()
    if not name.startswith(DATA):
        for number, line in enumerate(lines, 1):
            for pattern, what in FORBIDDEN:
                if found := pattern.search(line):
                    problems.append(f"{name}:{number}: {found.group()} is {what}")
        if lines and not text.endswith("\n"):
            problems.append(f"{name}: the last line has no end")
    if is_source(name) and not name.startswith(DATA):
        head = lines[1:2] if lines and lines[0].startswith("#!") else lines[:1]
        if not head or "SPDX-License-Identifier: Apache-2.0" not in head[0]:
            problems.append(f"{name}: does not begin with SPDX-License-Identifier: Apache-2.0")
        if len(lines) > MAX_LINES:
            problems.append(f"{name}: {len(lines)} lines, at most {MAX_LINES}; look for the second idea in it")
        problems += check_citations(root, name, text)
    return problems


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    problems = [problem for name in tracked(root) for problem in check_file(root, name)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
