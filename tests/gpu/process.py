# SPDX-License-Identifier: Apache-2.0
"""Starts one program with a time limit and leaves nothing of it running."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import subprocess
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
CASES = TREE / "tests/gpu/cases"
PROGRAMS = TREE / "tests/gpu/programs"

# How long a program that was asked to end may take before it is killed.
END_GRACE_S = 3.0

# NVLink multicast is refused on some shared hosts, and a lone machine has no other interface.
NCCL_DEFAULTS = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "NCCL_SOCKET_IFNAME": "lo",
}


@dataclasses.dataclass
class Ended:
    """How a program ended. `code` is negative for a signal, as subprocess has it."""

    code: int
    stdout: str
    stderr: str
    wall_s: float
    timed_out: bool

    def shell_code(self) -> int:
        return 128 - self.code if self.code < 0 else self.code

    def tail(self, lines: int = 6) -> list[str]:
        return [line for line in self.stderr.splitlines() if line.strip()][-lines:]


def corral_path() -> pathlib.Path:
    path = pathlib.Path(os.environ.get("CORRAL") or TREE / "build/release/corral")
    if not os.access(path, os.X_OK):
        raise SystemExit(f"{path}: not there or not executable; build it with ./dev build, or name it in CORRAL")
    return path.resolve()


def clean_environment(**more: str) -> dict[str, str]:
    """The caller's environment without what selects GPUs or configures Corral."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")
        and not (name.startswith("CORRAL_") and name != "CORRAL_SIM")
    }
    for name, value in NCCL_DEFAULTS.items():
        env.setdefault(name, value)
    env.update(PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1", XLA_PYTHON_CLIENT_PREALLOCATE="false")
    env.update(more)
    return env


def _members(session: int) -> list[int]:
    """The processes of a session: a job that Corral puts into a group of its own is still in it."""
    members = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = pathlib.Path("/proc", entry, "stat").read_text()
        except OSError:
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(entry))
    return members


def end_session(session: int) -> int:
    """Kills what is left of a session; returns how many processes that were."""
    killed = set()
    for _ in range(20):
        members = _members(session)
        if not members:
            break
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
    return len(killed)


def run(
    argv: list[str],
    *,
    limit_s: float,
    env: dict[str, str] | None = None,
    cwd: str | os.PathLike | None = None,
    pass_fds: tuple[int, ...] = (),
    stdin=subprocess.DEVNULL,
) -> Ended:
    """Output goes to files, not pipes: a process left behind could hold a pipe open for ever."""
    began = time.monotonic()
    timed_out = False
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(
            argv, stdin=stdin, stdout=out, stderr=err, env=env, cwd=cwd, pass_fds=pass_fds, start_new_session=True
        )
        try:
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            timed_out = True
            child.terminate()
            try:
                child.wait(END_GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        except BaseException:
            child.kill()
            raise
        finally:
            wall_s = time.monotonic() - began
            end_session(child.pid)
            child.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return Ended(child.returncode, texts[0], texts[1], wall_s, timed_out)
