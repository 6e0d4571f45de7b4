#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MPS with NVIDIA's own daemon: confined to one GPU, with confined clients that have shares.

Nothing of the card is changed. Every daemon is ended again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
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

CONTROL = "nvidia-cuda-mps-control"
# Where there is one GPU only, refusing this puts the clients into a real confinement all the same.
HARMLESS = "/dev/full"
CLIENT = [sys.executable, str(process.PROGRAMS / "mps_client.py")]
METHODS = ("auto", "landlock", "mount", "tight")
NOBODY = 65534


def corral(*words: str, limit_s: float = 60, env: dict[str, str] | None = None) -> process.Ended:
    return process.run([str(process.corral_path()), *words], limit_s=limit_s, env=env or process.clean_environment())


def mps_processes() -> dict[int, str]:
    """pid to the program's name, of daemons and servers."""
    found = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            words = pathlib.Path("/proc", entry, "cmdline").read_bytes().split(b"\0") if entry.isdigit() else []
            name = pathlib.Path(words[0].decode()).name if words else ""
            if name in (CONTROL, "nvidia-cuda-mps-server"):
                found[int(entry)] = name
    return found


def open_gpu_nodes(pid: int) -> set[str]:
    nodes = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if re.fullmatch(r"/dev/nvidia\d+", target):
                    nodes.add(target)
    return nodes


def memory_mib(seen: nvml.Nvml) -> list[float]:
    """By GPU; with what the driver keeps for itself."""
    return [seen.sample(gpu.index).memory_mib for gpu in seen.gpus]


def said_by(ended: process.Ended) -> dict:
    line = next((line for line in ended.stdout.splitlines() if line.startswith("{")), "{}")
    return json.loads(line)


def control(pipe: str, command: str) -> str:
    env = process.clean_environment(CUDA_MPS_PIPE_DIRECTORY=pipe)
    ended = subprocess.run([CONTROL], input=command + "\n", capture_output=True, text=True, timeout=30, env=env)
    return ended.stdout.strip()


@contextlib.contextmanager
def daemon_by_hand(prefix: list[str]):
    """A daemon with folders of its own, started behind `prefix`; gives the pipe folder."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        env = process.clean_environment(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
        subprocess.run([*prefix, CONTROL, "-d"], check=True, timeout=60, env=env)
        try:
            yield folder
        finally:
            control(folder, "quit")


def what_the_server_opens(part: results.Part, seen: nvml.Nvml) -> None:
    """Why the daemon is confined: without it, a client of one GPU puts a server on all."""
    gpus = seen.gpus
    last, refused = gpus[-1], gpus[:-1]
    before = memory_mib(seen)
    rows = []
    as_root = [str(process.corral_path()), "run", "-q", "--gpus", str(last.index), "--exec", "--"]
    for name, prefix in (("as it is", []), ("confined, its variable removed", [*as_root, "env", "-u", "CUDA_VISIBLE_DEVICES"])):
        with daemon_by_hand(prefix) as pipe:
            env = process.clean_environment(CUDA_MPS_PIPE_DIRECTORY=pipe, CUDA_VISIBLE_DEVICES=last.uuid)
            ended = process.run(CLIENT, limit_s=60, env=env)
            time.sleep(1)
            servers = [pid for pid, program in mps_processes().items() if program.endswith("server")]
            nodes = set().union(*(open_gpu_nodes(pid) for pid in servers)) if servers else set()
            used = [round(now - then) for now, then in zip(memory_mib(seen), before, strict=True)]
        rows.append([name, ended.shell_code(), ", ".join(sorted(nodes)), " / ".join(map(str, used))])
        if prefix:
            part.check("a confined server opens its GPU alone", nodes == {last.node()}, str(nodes))
            part.check("a confined server leaves the others alone",
                       all(memory == 0 for memory in used[: len(refused)]), str(used))  # fmt: skip
        else:
            part.check("as it is, the server opens every GPU", len(nodes) == len(gpus), str(nodes))
    text = f"One client with CUDA_VISIBLE_DEVICES set to GPU {last.index}'s UUID; the server's open nodes and each GPU's memory while it idles."
    part.section("## What a server opens\n\n" + text + "\n\n" + results.table(
        ["daemon", "client's exit code", "nodes that the server has open", "MiB more than before, by GPU"], rows))  # fmt: skip


def two_clients(part: results.Part, seen: nvml.Nvml, method: str, pairs: list) -> None:
    """Two confined clients at once, each with half of the GPU and 8 GiB."""
    last, refused = seen.gpus[-1], seen.gpus[:-1]
    options = ["--gpus", str(last.index), *confined.method_options(method), "--mps", "50%,8G"]
    options += [] if refused else ["--refuse", HARMLESS]
    with tempfile.TemporaryDirectory() as folder:
        reports = [pathlib.Path(folder, f"{i}.json") for i in range(2)]
        jobs = [
            subprocess.Popen(
                [str(process.corral_path()), "run", "-q", *options, "--report", str(report), "--",
                 *CLIENT, "--seconds", "3", "--stay", "6", "--gib", gib],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=process.clean_environment())  # fmt: skip
            for report, gib in zip(reports, ("4", "9"), strict=True)
        ]
        said = [json.loads(job.stdout.readline() or "{}") for job in jobs]
        status = corral("mps", "status", "--gpu", str(last.index), "--json")
        listed = seen.compute_pids(last.index)
        errors = [job.communicate(timeout=60)[1] for job in jobs]
        loaded = [json.loads(report.read_text()) if report.exists() else None for report in reports]
    codes = [job.returncode for job in jobs]
    name = f"two clients, {method}"
    part.check(f"{name}: end well", codes == [0, 0], f"{codes} {errors}")
    part.check(f"{name}: copies come back right", all(s.get("copies") for s in said), str(said))
    part.check(f"{name}: see one device", all(s.get("devices") == 1 for s in said), str(said))
    part.check(f"{name}: 4 GiB are given, 9 GiB are not", [s.get("allocated") for s in said] == [True, False], str(said))
    clients = (json.loads(status.stdout) if status.code == 0 else {"gpus": [{}]})["gpus"][0].get("clients") or []
    limits = [(client["percent"], client["memory_bytes"]) for client in clients]
    part.check(f"{name}: status shows both with their limits", limits == [(50, 8 << 30)] * 2, status.stdout)
    for report in loaded:
        problems = confined.wrongs(confined.Confined(process.Ended(0, "", "", 0, False), report), method, refused)
        part.check(f"{name}: the other GPUs are left alone", not problems, "; ".join(problems))
        part.check(f"{name}: no way out is named", report is not None and report["open_ways"] == [], str(report and report["open_ways"]))
    pairs.append([method, *(f"{s.get('multiprocessors')}, {s.get('free_mib')} MiB free, {s.get('products_per_s', 0):.0f}/s" for s in said),
                  len(listed)])  # fmt: skip


def without_the_node(part: results.Part, gpu: nvml.Gpu) -> None:
    """A job that may open no GPU, and points itself at a daemon that is there."""
    said = json.loads(corral("mps", "status", "--gpu", str(gpu.index), "--json").stdout)
    pipe = said["gpus"][0]["pipe"]
    argv = ["env", "-u", "CUDA_VISIBLE_DEVICES", f"CUDA_MPS_PIPE_DIRECTORY={pipe}", *CLIENT]
    rows = []
    for method in METHODS:
        ended = corral("run", "-q", "--gpus", "none", *confined.method_options(method), "--", *argv)
        last = " / ".join(ended.tail(1))[:120]
        part.check(f"without the node, {method}: a client does not work", ended.code != 0 and not said_by(ended), last)
        rows.append([method, ended.shell_code(), last])
    part.section("## A client that may not open the GPU's node\n\nUnder `corral run --gpus none`, with the variable set to the pipe of the "
                 "GPU's daemon.\n\n" + results.table(["method", "exit code", "last words"], rows))  # fmt: skip


def shares(part: results.Part, gpu: nvml.Gpu) -> None:
    """What a percentage does to one client alone."""
    rows = []
    for percent in ("100%", "50%", "25%"):
        ended = corral("run", "-q", "--gpus", str(gpu.index), "--mps", percent, "--", *CLIENT, "--seconds", "2")
        said = said_by(ended)
        part.check(f"alone with {percent}: works", ended.code == 0 and said.get("copies", False), " / ".join(ended.tail(2)))
        rows.append([percent, said.get("multiprocessors"), said.get("products_per_s")])
    part.section("## What a percentage does\n\nProducts of 4096×4096 bf16 matrices, one client alone.\n\n"
                 + results.table(["--mps", "multiprocessors that the client sees", "products a second"], rows))  # fmt: skip


def endings(part: results.Part, gpu: nvml.Gpu) -> None:
    """A daemon with a client, then one that was killed."""
    index = str(gpu.index)
    job = subprocess.Popen([str(process.corral_path()), "run", "-q", "--gpus", index, "--mps", "50%", "--", *CLIENT, "--stay", "30"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env=process.clean_environment())  # fmt: skip
    job.stdout.readline()
    refused = corral("mps", "stop", "--gpu", index)
    part.check("stop: refuses while there is a client", refused.code == 125 and "has clients" in refused.stderr, refused.stderr)
    began = time.monotonic()
    forced = corral("mps", "stop", "--gpu", index, "--force")
    took = time.monotonic() - began
    part.check("stop --force: ends it", forced.code == 0 and not mps_processes(), forced.stdout + forced.stderr + str(mps_processes()))
    try:
        _, errors = job.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        job.kill()
        _, errors = job.communicate()
        errors = "it went on waiting and was killed by the test: " + errors
    part.section(f"## stop --force\n\nIt took {took:.1f} s and said: `{forced.stdout.strip()}`. The client ended with "
                 f"{job.returncode} and said: `{errors.strip().splitlines()[-1] if errors.strip() else 'nothing'}`.")  # fmt: skip

    part.check("after it: starts again", corral("mps", "start", "--gpu", index).code == 0)
    for pid in mps_processes():
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    status = corral("mps", "status", "--gpu", index)
    part.check("killed: status says so", "a daemon was killed" in status.stdout, status.stdout)
    run = corral("run", "--gpus", index, "--mps", "50%", "--", "true")
    part.check("killed: a job is refused", run.code == 125 and "was killed" in run.stderr, run.stderr)
    again = corral("mps", "start", "--gpu", index)
    part.check("killed: starts again", again.code == 0, again.stdout + again.stderr)
    ended = corral("run", "-q", "--gpus", index, "--mps", "50%", "--", *CLIENT)
    part.check("killed: clients work again", ended.code == 0, " / ".join(ended.tail(2)))


def foreign(part: results.Part, gpus: list[nvml.Gpu]) -> None:
    """Somebody's daemon on all GPUs: a confined job's verdict says what its promise is worth."""
    last = gpus[-1]
    with daemon_by_hand([]) as pipe:
        env = process.clean_environment(CUDA_MPS_PIPE_DIRECTORY=pipe)
        ended = corral("run", "--gpus", str(last.index), "--", *CLIENT, env=env)
        status = corral("mps", "status")
    part.check("foreign: the job works", ended.code == 0, " / ".join(ended.tail(3)))
    part.check("foreign: the headline is lowered", f"but for the MPS server at {pipe}" in ended.stderr, ended.stderr)
    part.check("foreign: status shows it", f"pipe {pipe}, every GPU, dialect legacy" in status.stdout, status.stdout)
    part.section("## A daemon that Corral did not start\n\n`corral run --gpus " + str(last.index) + "` beside a daemon for all GPUs:\n\n```\n"
                 + ended.stderr.strip() + "\n```\n\n`corral mps status`:\n\n```\n" + status.stdout.strip() + "\n```")  # fmt: skip


def as_user(part: results.Part, gpu: nvml.Gpu) -> None:
    """An ordinary user on root's daemon, and on a daemon of its own."""
    if shutil.which("setpriv") is None:
        part.check("setpriv is there", False)
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(process.corral_path().parent, f"{folder}/corral", symlinks=False)
        shutil.copy(CLIENT[1], folder)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        home = pathlib.Path(folder, "home")
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        env = process.clean_environment(HOME=str(home), XDG_RUNTIME_DIR=str(home))
        client = [sys.executable, f"{folder}/{pathlib.Path(CLIENT[1]).name}"]

        def run(*words: str) -> process.Ended:
            return process.run([*user, f"{folder}/corral/corral", *words], limit_s=60, env=env, cwd=str(home))

        index = str(gpu.index)
        ended = run("run", "--gpus", index, "--mps", "50%", "--", *client)
        part.check("a user on root's daemon: works", ended.code == 0 and said_by(ended).get("copies", False), ended.stderr)
        part.check("root's daemon stops", corral("mps", "stop", "--gpu", index).code == 0)
        started = run("mps", "start", "--gpu", index)
        held = "by landlock" if len(nvml.Nvml().gpus) > 1 else "is the only one"
        part.check("a user's own daemon: starts", started.code == 0 and held in started.stdout, started.stdout + started.stderr)
        ended = run("run", "--gpus", index, "--mps", "50%,8G", "--", *client, "--gib", "9")
        said = said_by(ended)
        part.check("a user's own daemon: serves within the limit", ended.code == 0 and said.get("allocated") is False, f"{said} {ended.stderr}")
        part.check("a user's own daemon: is no way out", "but for" not in ended.stderr, ended.stderr)
        stopped = run("mps", "stop", "--gpu", index)
        part.check("a user's own daemon: stops", stopped.code == 0 and not mps_processes(), stopped.stdout + stopped.stderr)
        part.section("## As an ordinary user\n\n```\n" + "\n".join([started.stdout.strip(), ended.stderr.strip(), stopped.stdout.strip()]) + "\n```")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-s", type=float, default=300)
    arguments = parser.parse_args()
    seen = nvml.Nvml()
    gpus = seen.gpus
    with results.Part("mps", "MPS: confined daemons and clients", arguments.limit_s, seen) as part:
        part.check("no daemon was there before", not mps_processes(), str(mps_processes()))
        if len(gpus) > 1:
            what_the_server_opens(part, seen)
            foreign(part, gpus)
        else:
            part.does_not_show("that a server opens other GPUs, and a confined one does not: this machine has one GPU")
        index = str(gpus[-1].index)
        started = corral("mps", "start", "--gpu", index)
        if part.check("starts", started.code == 0, started.stdout + started.stderr):
            pairs: list = []
            for method in METHODS:
                if part.has_time_for(30, f"two clients, {method}"):
                    two_clients(part, seen, method, pairs)
            head = ["method", "client 1 (4 GiB)", "client 2 (9 GiB)", "processes that NVML lists"]
            part.section("## Two confined clients at once, each with `--mps 50%,8G`\n\nMultiprocessors, free memory and products a second as each client saw them.\n\n"
                         + results.table(head, pairs))  # fmt: skip
            without_the_node(part, gpus[-1])
            shares(part, gpus[-1])
            endings(part, gpus[-1])
            as_user(part, gpus[-1])
        corral("mps", "stop", "--gpu", index, "--force")
        part.check("no daemon is left", not mps_processes(), str(mps_processes()))
        part.does_not_show("the v3 dialect: this driver has none; a stand-in speaks it in `tests/e2e/mps.spec`")
        part.does_not_show("that a percentage keeps an enemy out: a client may ask for another one, up to the daemon's default")
        part.does_not_show("MIG instances and several users on one daemon at the same time")
    return part.exit_code()


if __name__ == "__main__":
    sys.exit(main())
