# SPDX-License-Identifier: Apache-2.0
"""Tries to open a device node in every way that needs no help from outside.

usage: open_ways.py NODE INHERITED_FD DEVICE_NUMBER

Prints one JSON object: way -> "open", the name of the error that stopped it, or "something else" when
what opened is not that device (a cover over its name). Only opens; nothing is ever asked of the device. x86-64 only: system calls are made by number, past the C library.
"""

import ctypes
import errno
import json
import os
import stat
import struct
import sys
import tempfile

OPEN, OPENAT, OPENAT2, IO_URING_SETUP = 2, 257, 437, 425
AT_FDCWD = -100
MODES = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "3": 3}
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 4096, 16384, 1 << 18

libc = ctypes.CDLL(None, use_errno=True)
NUMBER = int(sys.argv[3])


class Refused(Exception):
    pass


def checked(result):
    if result < 0:
        code = ctypes.get_errno()
        raise Refused(errno.errorcode.get(code, str(code)))
    return result


def system_call(number, *arguments):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return checked(libc.syscall(ctypes.c_long(number), *wide))


def close(descriptor):
    found = os.fstat(descriptor)
    os.close(descriptor)
    return "open" if stat.S_ISCHR(found.st_mode) and found.st_rdev == NUMBER else "something else"


def by_open(path, mode):
    return close(system_call(OPEN, path.encode(), mode | os.O_CLOEXEC, 0))


def by_openat(path, mode):
    return close(system_call(OPENAT, AT_FDCWD, path.encode(), mode | os.O_CLOEXEC, 0))


def by_openat2(path, mode):
    how = struct.pack("QQQ", mode | os.O_CLOEXEC, 0, 0)
    return close(system_call(OPENAT2, AT_FDCWD, path.encode(), how, len(how)))


def by_io_uring(_):
    parameters = ctypes.create_string_buffer(120)  # struct io_uring_params
    os.close(system_call(IO_URING_SETUP, 4, parameters))
    return "open"


def by_path_descriptor(node):
    handle = os.open(node, os.O_PATH | os.O_CLOEXEC)
    try:
        return by_open(f"/proc/self/fd/{handle}", os.O_RDWR)
    finally:
        os.close(handle)


def by_symlink(node):
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(node, f"{folder}/link")
        return by_open(f"{folder}/link", os.O_RDWR)


def by_hard_link(node):
    link = f"{node}-link-{os.getpid()}"
    os.link(node, link)
    try:
        return by_open(link, os.O_RDWR)
    finally:
        os.unlink(link)


def by_second_node(folder):
    def way(node):
        path = f"{folder}/node-{os.getpid()}"
        os.mknod(path, stat.S_IFCHR | 0o666, NUMBER)
        try:
            return by_open(path, os.O_RDWR)
        finally:
            os.unlink(path)

    return way


def by_bind_mount(node):
    """In a child with a mount namespace of its own: nothing of it stays."""

    def mount():
        checked(libc.unshare(CLONE_NEWNS))
        checked(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None))
        with tempfile.TemporaryDirectory() as folder:
            target = f"{folder}/node"
            open(target, "w").close()
            checked(libc.mount(node.encode(), target.encode(), None, ctypes.c_ulong(MS_BIND), None))
            try:
                return by_open(target, os.O_RDWR)
            finally:
                libc.umount2(target.encode(), 2)

    return in_child(mount)


def by_leaving_cgroup(node):
    """A root job moves itself to the root of the cgroup tree, where no device rule holds."""

    def leave():
        with open("/sys/fs/cgroup/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
        return by_open(node, os.O_RDWR)

    return in_child(leave)


def in_child(action):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, attempt(action).encode())
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 200).decode()
    os.close(reader)
    os.waitpid(child, 0)
    return answer


def attempt(action, *arguments):
    try:
        return action(*arguments)
    except Refused as error:
        return str(error)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def inherited(descriptor):
    return close(os.dup(descriptor))


def main():
    node, descriptor = sys.argv[1], int(sys.argv[2])
    answers = {}
    for name, call in (("open", by_open), ("openat", by_openat), ("openat2", by_openat2)):
        for mode_name, mode in MODES.items():
            answers[f"{name} {mode_name}"] = attempt(call, node, mode)
    answers["/proc/self/root"] = attempt(by_open, f"/proc/self/root{node}", os.O_RDWR)
    answers["/proc/1/root"] = attempt(by_open, f"/proc/1/root{node}", os.O_RDWR)
    answers["inherited descriptor"] = attempt(inherited, descriptor)
    answers["inherited as stdin"] = attempt(inherited, 0)
    for name, way in (
        ("O_PATH reopened", by_path_descriptor),
        ("symlink", by_symlink),
        ("hard link", by_hard_link),
        ("second node in /tmp", by_second_node("/tmp")),
        ("second node in /dev/shm", by_second_node("/dev/shm")),
        ("bind mount", by_bind_mount),
        ("io_uring_setup", by_io_uring),
        ("left the cgroup", by_leaving_cgroup),
    ):
        answers[name] = attempt(way, node)
    print(json.dumps(answers))


main()
