# SPDX-License-Identifier: Apache-2.0
"""Makes contexts from every kind of Python frame, and prints what the interpreter itself says of
each stack at that moment. Named with other letters by the test, as are the functions here."""
import asyncio
import ctypes
import json
import os
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
stacks = []


def here():
    frame, found = sys._getframe(1), []
    while frame is not None:
        found.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    stacks.append(found)
    return ctypes.byref(context)


def make(device=0):
    assert cuda.cuCtxCreate_v2(here(), 0, device) == 0


class Größe:
    def trainiere_模型(self):
        for _ in range(2):
            if True:
                make(1)

    __call__ = trainiere_模型

    def __enter__(self):
        make()
        return self

    def __exit__(self, *error):
        make()

    def __del__(self):
        make()


def generator():
    value = 1
    make()
    yield value
    make()


def delegating():
    yield from generator()


async def coroutine():
    await asyncio.sleep(0)
    make()
    async for _ in agenerator():
        make()


async def agenerator():
    make()
    yield 1


def deep(depth):
    return make() if depth == 0 else deep(depth - 1)


def in_handler():
    try:
        raise ValueError(1)
    except ValueError:
        make()
    finally:
        make()


def decorated(function):
    def wrapper(*arguments, **options):
        return function(*arguments, **options)

    return wrapper


@decorated
def with_decorator(
    first=None,
    second=None,
):
    return (
        first,
        make(
        ),
        second,
    )


def trace_function(frame, event, argument):
    return trace_function


assert cuda.cuInit(0) == 0
Größe().trainiere_模型()
with Größe() as größe:
    größe()
del größe
for _ in delegating():
    make()
asyncio.run(coroutine())
(lambda: [make() for _ in range(2)])()
{key: make() for key in "ab"}
list(map(lambda device: make(device), [0, 1]))
sorted([2, 1], key=lambda value: make() or value)
in_handler()
with_decorator()
exec(compile("\n\nmake()", "<string>", "exec"))
eval("make()")
deep(40)
sys.setrecursionlimit(5000)
deep(900)
for name in ("Arbeiter", "б" * 40):
    thread = threading.Thread(target=make, name=name)
    thread.start()
    thread.join()
sys.settrace(trace_function)
make()
sys.settrace(None)
if hasattr(sys, "setprofile"):
    sys.setprofile(trace_function)
    make()
    sys.setprofile(None)
exec(compile("\n" * 70000 + "make()", "/很长/" + "x" * 600 + "/ende.py", "exec"))
CALLBACK = ctypes.CFUNCTYPE(None)
CALLBACK(make)()
surrogate = os.fsdecode(b"/tmp/\xff\xfe.py")
exec(compile("make()", surrogate, "exec"))
json.dump(stacks, sys.stdout)
