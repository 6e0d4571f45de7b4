#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every case under `corral trace`: is each stray named by GPU, process, line, finding and fix, and is
nothing said of the controls?"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import sys
import tempfile

import case_files
import nvml
import process
import results

CASE_LIMIT_S = 90


@dataclasses.dataclass
class Traced:
    ended: process.Ended
    report: dict | None

    def strays(self) -> list[dict]:
        return [context for context in (self.report or {}).get("contexts", []) if context["stray"]]

    def findings(self) -> list[dict]:
        return [finding for finding in (self.report or {}).get("findings", []) if finding["id"].startswith("stray.")]


def trace(case: case_files.Case, folder: pathlib.Path) -> Traced:
    report = folder / f"{case.name}.json"
    argv = [str(process.corral_path()), "trace", "--expect", case.expected(), "--report", str(report), "--"]
    argv += [sys.executable, str(case.path)]
    ended = process.run(argv, limit_s=CASE_LIMIT_S, env=process.clean_environment(), cwd=process.CASES)
    try:
        return Traced(ended, json.loads(report.read_text()))
    except (OSError, ValueError):
        return Traced(ended, None)


def wrongs(case: case_files.Case, traced: Traced) -> list[str]:
    if traced.report is None:
        return [f"no report: {' / '.join(traced.ended.tail(3))}"]
    problems = [] if traced.ended.code == 0 else [f"exit {traced.ended.shell_code()}"]
    ids = sorted({finding["id"] for finding in traced.findings()})
    if not case.findings:
        return problems + ([f"a control, and said: {', '.join(ids)}"] if ids or traced.strays() else [])
    strays = traced.strays()
    if not strays:
        problems.append("no context is marked as a stray")
    pids = {line["pid"] for line in case_files.printed(traced.ended.stdout)}
    for context in strays:
        if context["gpu"] not in case.stray_gpus():
            problems.append(f"stray on GPU {context['gpu']}, wanted {case.stray_gpus()}")
        if context["pid"] not in pids:
            problems.append(f"pid {context['pid']} is none of {sorted(pids)}")
        problems += wrong_culprit(case, context)
        if context["finding"] not in case.findings:
            problems.append(f"explained by {context['finding']}, wanted {' or '.join(case.findings)}")
    if missing := set(case.findings) - set(ids):
        problems.append(f"no finding {', '.join(sorted(missing))}; there are: {', '.join(ids) or 'none'}")
    for finding in traced.findings():
        if empty := [part for part in ("cause", "verify", "fix") if not finding[part]]:
            problems.append(f"{finding['id']} has no {', '.join(empty)}")
    said = " ".join(text for finding in traced.findings() for text in finding["evidence"])
    problems += [
        f"the cause, line {line}, is not named"
        for line in case.cause_lines
        if f"{case.path.name}:{line}" not in said
    ]
    return problems


def wrong_culprit(case: case_files.Case, context: dict) -> list[str]:
    culprit = context["culprit"] or {}
    where = (pathlib.Path(culprit.get("file", "")).name, culprit.get("line"))
    if where[0] == case.path.name and where[1] in case.culprit_lines:
        return []
    return [f"culprit {where[0]}:{where[1]}, wanted line {case.culprit_lines} (pid {context['pid']})"]


def row(case: case_files.Case, traced: Traced, problems: list[str]) -> list:
    strays = traced.strays()
    return [
        case.name,
        case.expected(),
        each(f"GPU {context['gpu']}" for context in strays),
        len(strays),
        each(where(context) for context in strays),
        each(context["finding"] for context in strays),
        each(finding["fix"].replace(f"{process.CASES}/", "") for finding in traced.findings()),
        "; ".join(problems) or "right",
    ]


def each(texts) -> str:
    """Each once, in their order."""
    return "; ".join(dict.fromkeys(text or "-" for text in texts)) or "-"


def where(context: dict) -> str:
    culprit = context["culprit"]
    return f"{pathlib.Path(culprit['file']).name}:{culprit['line']} {culprit['function']}" if culprit else "-"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="", help="names with commas between; default: all")
    parser.add_argument("--at-once", type=int, default=6, help="cases that run at the same time")
    parser.add_argument("--limit-s", type=float, default=300)
    arguments = parser.parse_args()
    gpus = nvml.two_gpus()
    cases = case_files.choose(case_files.load_all(), arguments.cases)
    with (
        results.Part("attribution", "Who strayed, by `corral trace`", arguments.limit_s, gpus) as part,
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool,
    ):
        traced = list(pool.map(lambda case: trace(case, pathlib.Path(folder)), cases))
        rows = []
        for case, result in zip(cases, traced):
            problems = wrongs(case, result)
            part.check(case.name, not problems, "; ".join(problems))
            rows.append(row(case, result, problems))
        head = ["case", "--expect", "stray on", "stray contexts", "culprit", "finding", "fix", "verdict"]
        part.section("## Cases\n\n" + results.table(head, rows))
        part.data["reports"] = {
            case.name: {name: (result.report or {}).get(name) for name in ("contexts", "inits", "findings")}
            for case, result in zip(cases, traced)
        }
        part.does_not_show("frameworks of other versions than this machine's: the frames by which a rule knows a cause differ")
        part.does_not_show("anything of speed: the cases ran several at a time")
    return part.exit_code()


if __name__ == "__main__":
    raise SystemExit(main())
