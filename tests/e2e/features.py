# SPDX-License-Identifier: Apache-2.0
"""What this machine has, under the names that REQUIRES and CORRAL_MUST_WORK use."""
import ctypes
import os
import shutil
import subprocess

LANDLOCK_CREATE_RULESET = 444
VERSION_FLAG = 1


def has_landlock():
    return ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION_FLAG) > 0


def has_cgroup2():
    return os.geteuid() == 0 and any(
        os.access(os.path.join(folder, "cgroup.procs"), os.W_OK) and
        os.path.exists(os.path.join(folder, "cgroup.controllers"))
        for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"))


def has_userns():
    return shutil.which("unshare") is not None and subprocess.run(
        ["unshare", "--user", "--map-current-user", "--mount", "true"],
        user=65534 if os.geteuid() == 0 else None, capture_output=True).returncode == 0


def has_cgroup1(controller):
    """A v1 hierarchy of that controller, in whose group of ours groups can be made."""
    with open("/proc/self/cgroup", encoding="ascii") as text:
        groups = [line.split(":", 2) for line in text.read().splitlines()]
    paths = [path for _, controllers, path in groups if controller in controllers.split(",")]
    return os.geteuid() == 0 and any(
        os.access(os.path.join("/sys/fs/cgroup", controller, path.lstrip("/"), "cgroup.procs"), os.W_OK)
        for path in paths)


CHECKS = {
    "root": lambda: os.geteuid() == 0,
    "landlock": has_landlock,
    "seccomp": lambda: os.path.exists("/proc/sys/kernel/seccomp/actions_avail"),
    "cgroup1": lambda: os.geteuid() == 0 and os.access("/sys/fs/cgroup/devices/devices.deny", os.W_OK),
    "cgroup1-cpuset": lambda: has_cgroup1("cpuset"),
    "cgroup1-memory": lambda: has_cgroup1("memory"),
    "cgroup1-pids": lambda: has_cgroup1("pids"),
    "cgroup2": has_cgroup2,
    "setpriv": lambda: shutil.which("setpriv") is not None and os.geteuid() == 0,
    "userns": has_userns,
    "no-gpu": lambda: not os.path.exists("/dev/nvidia0"),
}


def missing_features(names):
    return [name for name in names if not CHECKS[name]()]
