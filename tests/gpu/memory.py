#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allocator settings against the installed PyTorch and JAX, and the findings on memory of real jobs.

What Corral accepts the installed PyTorch must take, unless the option is newer or older than it;
what Corral refuses PyTorch must refuse, unless it is listed as ignored.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import re
import subprocess
import sys

import confined
import nvml
import process
import results

ALWAYS = (0, 0)
NEVER = (99, 0)  # no longer, or not yet in a release

# Accepted by Corral: the setting, and since which PyTorch.
ACCEPTED = [
    ("expandable_segments:True", ALWAYS),
    ("expandable_segments:False", ALWAYS),
    ("max_split_size_mb:20", (2, 6)),
    ("max_split_size_mb:128", ALWAYS),
    ("max_non_split_rounding_mb:30", (2, 6)),
    ("roundup_power2_divisions:4", ALWAYS),
    ("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", ALWAYS),
    ("roundup_power2_divisions:[64:0]", (2, 6)),
    ("garbage_collection_threshold:0.8", ALWAYS),
    ("garbage_collection_threshold:.5", ALWAYS),
    ("large_segment_size_mb:12", (2, 11)),
    ("large_segment_size_mb:11", (2, 11)),
    ("large_segment_size_mb:12,max_split_size_mb:12", (2, 11)),
    ("release_lock_on_cudamalloc:True", (2, 2)),
    ("release_lock_on_hipmalloc:True", (2, 2)),
    ("graph_capture_record_stream_reuse:True", (2, 9)),
    ("per_process_memory_fraction:0.5", (2, 10)),
    ("throw_on_cudamalloc_oom:True", (2, 12)),
    ("pinned_use_cuda_host_register:True", (2, 2)),
    ("pinned_use_cuda_host_register:True,pinned_num_register_threads:128", (2, 2)),
    ("pinned_use_background_threads:True", (2, 6)),
    ("pinned_reserve_segment_size_mb:16", (2, 10)),
    ("pinned_max_round_threshold_mb:64", (2, 13)),
    ("pinned_max_cached_size_mb:0", (2, 13)),
    ("expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8", ALWAYS),
    (" expandable_segments : True , max_split_size_mb : 64 ", ALWAYS),
    ("roundup_bypass_threshold_mb:64", NEVER),
]

# Refused by Corral: the setting, and whether PyTorch refuses it too or takes it without effect.
REFUSED = [
    ("expandable_segment:True", "refuses"),
    ("expandable_segments:true", "refuses"),
    ("max_split_size_mb:19", "refuses"),
    ("max_split_size_mb:abc", "refuses"),
    ("max_non_split_rounding_mb:5", "refuses"),
    ("garbage_collection_threshold:0", "refuses"),
    ("garbage_collection_threshold:1.0", "refuses"),
    ("roundup_power2_divisions:3", "refuses"),
    ("roundup_power2_divisions:[300:4]", "refuses"),
    ("roundup_power2_divisions:[256:3]", "refuses"),
    ("pinned_use_cuda_host_register:True,pinned_num_register_threads:3", "refuses"),
    ("pinned_use_cuda_host_register:True,pinned_num_register_threads:256", "refuses"),
    ("max_split_size_mb:128M", "ignores"),
    ("pinned_num_register_threads:8", "ignores"),
]


def corral_takes(conf: str, option: str = "--torch-alloc") -> tuple[bool, str]:
    argv = [str(process.corral_path()), "run", option, conf, "--dry-run", "--", "true"]
    ended = process.run(argv, limit_s=20, env=process.clean_environment())
    return ended.code == 0, f"exit {ended.shell_code()} {' / '.join(ended.tail(2))}"


def ask_torch(confs: list[str]) -> dict:
    program = str(process.PROGRAMS / "torch_alloc_confs.py")
    ended = subprocess.run([sys.executable, program], input=json.dumps(confs), capture_output=True, text=True,
                           timeout=120, env=process.clean_environment(), check=False)  # fmt: skip
    return json.loads(ended.stdout.splitlines()[-1]) if ended.returncode == 0 else {"failed": ended.stderr[-400:]}


def compare(part: results.Part) -> None:
    confs = [conf for conf, _ in ACCEPTED] + [conf for conf, _ in REFUSED]
    said = ask_torch(confs)
    if not part.check("torch was asked", "answers" in said, said.get("failed", "")):
        return
    version = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", said["version"]).groups())
    answers = dict(zip(confs, said["answers"]))
    rows = []
    for conf, since in ACCEPTED:
        taken, detail = corral_takes(conf)
        part.check(f"corral takes {conf}", taken, detail)
        if version >= since:
            part.check(f"torch {said['version']} takes {conf}", answers[conf] is None, str(answers[conf]))
        else:
            part.check(f"torch {said['version']} does not know {conf}", answers[conf] is not None, "it takes it")
        rows.append([f"`{conf}`", "takes" if taken else "refuses", answers[conf] or "takes"])
    for conf, wanted in REFUSED:
        taken, detail = corral_takes(conf)
        part.check(f"corral refuses {conf}", not taken, detail)
        part.check(f"torch {wanted} {conf}", (answers[conf] is None) == (wanted == "ignores"), str(answers[conf]))
        rows.append([f"`{conf}`", "takes" if taken else "refuses", answers[conf] or "takes"])
    head = f"## Settings, Corral and PyTorch {said['version']}\n\n"
    part.section(head + results.table(["setting", "corral", "torch"], rows))


def ids(run: confined.Confined) -> list[str]:
    found = [finding["id"] for finding in (run.report or {}).get("findings", [])]
    return sorted(name for name in found if "memory" in name)


def titles(run: confined.Confined) -> list[str]:
    return [f["title"] for f in (run.report or {}).get("findings", []) if "memory" in f["id"]]


def torch_job(gpu: int, way: str, *options: str, seconds: float = 0, limit_s: float = 60) -> confined.Confined:
    command = [sys.executable, str(process.PROGRAMS / "torch_memory.py"), way, str(seconds)]
    return confined.run(["--gpus", str(gpu), *options], command, limit_s=limit_s, env=process.clean_environment())


def judge(part: results.Part, name: str, run: confined.Confined, wanted: list[str], code: int = 0) -> list:
    detail = f"{ids(run)}, exit {run.ended.shell_code()} {' / '.join(run.ended.tail(3))}"
    right = ids(run) == wanted and run.ended.code == code
    part.check(f"{name}: {', '.join(wanted) or 'nothing is found'}", right, detail)
    retries = re.search(r"retries (\d+)", run.ended.stdout)
    return [name, retries.group(1) if retries else None, " / ".join(titles(run)) or "-"]


def pieces(part: results.Part, gpu: int) -> list[list]:
    rows = []
    plain = torch_job(gpu, "fragment")
    rows.append(judge(part, "cached pieces", plain, ["run.memory-fragmented"]))
    part.check("torch counted the same", "retries 1" in plain.ended.stdout, plain.ended.stdout[-200:])
    cured = torch_job(gpu, "fragment", "--torch-alloc", "expandable_segments:True")
    rows.append(judge(part, "cached pieces, expandable segments", cured, []))
    never = "retries 0" in cured.ended.stdout
    part.check("expandable segments: torch never asked again", never, cured.ended.stdout[-200:])
    rows.append(judge(part, "more than there is", torch_job(gpu, "too-much"), ["run.out-of-memory"], code=1))
    asynchronous = torch_job(gpu, "touch", "--torch-alloc", "backend:cudaMallocAsync")
    rows.append(judge(part, "backend:cudaMallocAsync", asynchronous, []))
    return rows


def growth(part: results.Part, gpus: nvml.Nvml, seconds: float) -> list[list]:
    first, last = gpus.gpus[0].index, gpus.gpus[-1].index
    # Growth is told of a job that has its GPU to itself.
    with concurrent.futures.ThreadPoolExecutor(1 if first == last else 2) as pool:
        leak = pool.submit(torch_job, last, "leak", seconds=seconds, limit_s=seconds + 60)
        saw = pool.submit(torch_job, first, "saw", seconds=seconds, limit_s=seconds + 60)
        return [judge(part, f"a leak of {seconds:.0f} s", leak.result(), ["run.memory-growth"]),
                judge(part, f"a saw of {seconds:.0f} s", saw.result(), [])]  # fmt: skip


def jax(part: results.Part, gpus: nvml.Nvml) -> list[list]:
    rows = []
    last = gpus.gpus[-1].index
    command = [sys.executable, "-c", "import jax.numpy as n; n.ones(9).block_until_ready(); import time; time.sleep(2)"]
    for conf, low, high in (("preallocate:true,fraction:0.3", 0.25, 0.4), ("preallocate:false", 0.0, 0.1),
                            ("allocator:platform", 0.0, 0.1), ("allocator:cuda_async,preallocate:false", 0.0, 0.1)):  # fmt: skip
        run = confined.run(["--gpus", str(last), "--jax-alloc", conf], command, limit_s=60,
                           env=process.clean_environment())  # fmt: skip
        peak = (run.gpu(last) or {}).get("memory_max_bytes")
        share = peak / gpus.total_bytes(last) if peak else None
        detail = f"{share} of the card, exit {run.ended.shell_code()} {' / '.join(run.ended.tail(2))}"
        part.check(f"JAX with {conf}: {low:.0%} to {high:.0%} of the card",
                   run.ended.code == 0 and share is not None and low <= share <= high, detail)  # fmt: skip
        rows.append([f"`{conf}`", None if share is None else f"{share:.1%}"])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=420)
    parser.add_argument("--seconds", type=float, default=80, help="how long the leak and the saw last; at least 65")
    arguments = parser.parse_args()
    gpus = nvml.Nvml()
    last = gpus.gpus[-1]
    with results.Part("memory", "Allocator settings and findings on memory", arguments.limit_s, gpus) as part:
        compare(part)
        rows = []
        if part.has_time_for(60, "pieces and refusals"):
            rows += pieces(part, last.index)
        if part.has_time_for(arguments.seconds * 2 + 30, "growth"):
            rows += growth(part, gpus, arguments.seconds)
        part.section("## What the verdict said\n\n" + results.table(["job", "torch's retries", "findings"], rows))
        if part.has_time_for(40, "JAX"):
            part.section("## JAX, memory of the card\n\n" + results.table(["--jax-alloc", "most"], jax(part, gpus)))
        part.does_not_show("TensorFlow, which is not installed here: its settings were read in its sources")
    return part.exit_code()


if __name__ == "__main__":
    sys.exit(main())
