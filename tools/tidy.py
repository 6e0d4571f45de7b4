#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy-19 on every file of a build, but on none that was clean before and is unchanged.

usage: tools/tidy.py BUILD-FOLDER [PART-OF-A-PATH…]

Unchanged means: the file, every header of ours that it reaches, its compile command, the
configuration and clang-tidy itself. What was clean is remembered in BUILD-FOLDER/tidy.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

TIDY = "clang-tidy-19"
ROOT = pathlib.Path(__file__).resolve().parents[1]
INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@functools.cache
def content(path: pathlib.Path) -> bytes:
    return path.read_bytes()


def reached(source: pathlib.Path, include_folders: list[pathlib.Path]) -> list[pathlib.Path]:
    found: set[pathlib.Path] = set()
    todo = [source]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for name in INCLUDE.findall(content(path)):
            for folder in [path.parent, *include_folders]:
                candidate = (folder / name.decode()).resolve()
                if candidate.is_file():
                    todo.append(candidate)
                    break
    return sorted(found)


def key_of(entry: dict[str, str], version: str) -> str:
    source = pathlib.Path(entry["directory"], entry["file"]).resolve()
    folders = [pathlib.Path(f) for f in re.findall(r"-I\s*(\S+)", entry["command"])]
    digest = hashlib.sha256()
    digest.update(f"{version}\0{entry['command']}\0".encode())
    for configuration in sorted(ROOT.glob("**/.clang-tidy")):
        digest.update(content(configuration) + b"\0")
    for path in reached(source, folders):
        digest.update(f"{path}\0".encode() + content(path) + b"\0")
    return digest.hexdigest()


FINDING = re.compile(r"^(?=/[^\n]*: (?:error|warning): )", re.MULTILINE)


def run(build: pathlib.Path, file: str) -> tuple[bool, str]:
    done = subprocess.run([TIDY, "--quiet", "-p", str(build), file],
                          capture_output=True, text=True, check=False)
    # stderr holds the count of warnings in other people's headers, unless clang-tidy itself failed.
    return done.returncode == 0, done.stdout or done.stderr


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 64
    build = pathlib.Path(sys.argv[1]).resolve()
    parts = sys.argv[2:]
    entries = json.loads((build / "compile_commands.json").read_text())
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    stamps = build / "tidy"
    stamps.mkdir(exist_ok=True)

    todo: dict[str, pathlib.Path] = {}
    for entry in entries:
        source = pathlib.Path(entry["directory"], entry["file"]).resolve()
        inside = source.is_relative_to(ROOT) and not source.is_relative_to(build)
        if not inside or (parts and not any(part in str(source) for part in parts)):
            continue
        stamp = stamps / key_of(entry, version)
        if not stamp.exists():
            todo.setdefault(str(source), stamp)

    failed = 0
    shown: set[str] = set()  # a finding in a header comes with every file that includes it
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(run, build, file): (file, stamp) for file, stamp in todo.items()}
        for job in concurrent.futures.as_completed(jobs):
            file, stamp = jobs[job]
            clean, text = job.result()
            if clean:
                stamp.touch()
            else:
                failed += 1
                new = [finding for finding in FINDING.split(text) if finding and finding not in shown]
                shown.update(new)
                print("".join(new).replace(f"{ROOT}/", ""), end="", flush=True)
    print(f"clang-tidy: {len(todo)} files looked at, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
