# SPDX-License-Identifier: Apache-2.0
"""The Python frames that the shim takes: of every version, of threads without Python, while an
interpreter ends, of interpreters that are embedded, stripped, patched or unknown.
`python_test.py CLASS…` runs those classes."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

from shim_test import HERE, SOURCE, ShimTest, made, run_tests

INTERPRETERS = ["python3.8", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13",
                "python3.13t", "python3.14", "python3.14t"]
PROBE = ("import ctypes, sys, sysconfig\n"
         "print('%d.%d' % sys.version_info[:2] + 't' * bool(sysconfig.get_config_var('Py_GIL_DISABLED')))")


def interpreter(name):
    """The interpreter of that version, from the folders of CORRAL_TEST_PYTHONS, from PATH or from
    pyenv's folder; None when there is none."""
    version = name.removeprefix("python")
    candidates = [shutil.which(name, path=os.environ.get("CORRAL_TEST_PYTHONS", "")), shutil.which(name)]
    candidates += sorted(pathlib.Path.home().glob(f".pyenv/versions/{version.rstrip('t')}.*/bin/{name}"))
    for candidate in candidates:
        if candidate is None:
            continue
        probe = subprocess.run([str(candidate), "-c", PROBE], capture_output=True, text=True, check=False)
        if probe.stdout.strip() == version:
            return str(candidate)
    return None


def kept(file):
    """A file name as the trace keeps it: bytes that Python could not decode as they were (the dump
    shows each as U+FFFD), and the last 512 bytes of a long one."""
    text = os.fsencode(file).decode("utf-8", "replace") if "\udc80" <= max(file) <= "\udcff" else file
    return text


class Python(ShimTest):
    """Stacks are what the interpreter itself says."""

    def stacks(self, name, python):
        script = self.folder / "ünï_模型_😀.py"
        shutil.copy(SOURCE / "tests/shim/programs/stacks.py", script)
        result = self.run_job(python, script, env={"PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"})
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        expected = json.loads(result.stdout)
        contexts = made(self.one_trace())
        self.assertEqual(len(contexts), len(expected))
        self.assertGreater(len(contexts), 30)
        for context, stack in zip(contexts, expected):
            self.assertEqual(context["source"], "walker " + name.removeprefix("python"))
            omitted = max(0, len(stack) - 64)
            self.assertEqual(context["omitted"], omitted)
            if omitted:
                stack = stack[:56] + stack[-8:]
            for got, want in zip(context["python"], stack):
                self.assertEqual(got[1:], want[1:])
                self.assertTrue(kept(want[0]).endswith(got[0]) and len(got[0]) > 0, (got, want))
                if len(want[0].encode("utf-8", "replace")) <= 128:
                    self.assertEqual(got[0], kept(want[0]))
            self.assertEqual(len(context["python"]), len(stack))

    def test_a_program_without_python_says_so(self):
        self.client("use", "libcuda.so.1")
        self.assertEqual(made(self.one_trace())[0]["source"], "no interpreter")


def with_each(test_class, method, names):
    """Adds a test for each interpreter, which calls method(self, name, path)."""
    for name in names:
        def test(self, name=name):
            path = interpreter(name)
            if path is None:
                self.skip(name, "not installed")
            getattr(self, method)(name, path)
        setattr(test_class, f"test_{method}_of_" + name.replace(".", "_"), test)


with_each(Python, "stacks", INTERPRETERS)

LIBRARY = f"import ctypes\nlibrary = ctypes.CDLL('{HERE}/libnative_thread.so')\n"
CUDA = "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\nassert cuda.cuInit(0) == 0\n"


def walker(name):
    return "walker " + name.removeprefix("python")


class PythonMainThread(ShimTest):
    """The main thread's frames stand beside those of any other thread, also one without Python."""

    def script(self, text):
        path = self.folder / "job.py"
        path.write_text(CUDA + LIBRARY + text)
        return path

    def waiting(self, name, python):
        script = self.script("def wait():\n"
                             "    return library.make_on_native_thread()\n"
                             "\n\n"
                             "assert wait() == 0\n")
        result = self.run_job(python, script)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        context = made(self.one_trace())[0]
        self.assertEqual((context["python"], context["source"]), ([], "no Python state on this thread"))
        self.assertEqual(context["main_thread"], [[str(script), 7, "wait"], [str(script), 10, "<module>"]])
        self.assertEqual(context["main_thread_source"], walker(name))
        self.assertIn(f"{HERE}/libnative_thread.so", [frame[0] for frame in context["native"]])

    def busy(self, name, python):
        script = self.script("assert library.start_maker(150) == 0\n"
                             "def down(depth):\n"
                             "    exec('def leaf(): return 1\\nleaf()')\n"
                             "    return down(depth - 1) if depth else list(x for x in range(9))\n"
                             "while not library.maker_is_done():\n"
                             "    down(30)\n")
        result = self.run_job(python, script)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        contexts = made(self.one_trace())
        self.assertEqual(len(contexts), 150)
        lines = {"leaf": {1}, "<genexpr>": {9}, "down": {7, 8, 9}, "<module>": {1, 2, 6, 7, 10, 11}}
        for context in contexts:
            self.assertEqual((context["python"], context["source"]), ([], "no Python state on this thread"))
            if not context["main_thread"]:
                self.assertNotRegex(context["main_thread_source"], "^walker |^$")
                continue
            self.assertEqual(context["main_thread_source"], walker(name))
            self.assertEqual(context["main_thread"][-1][::2], [str(script), "<module>"])
            for number, (file, line, function) in enumerate(context["main_thread"]):
                self.assertIn(file, (str(script), "<string>"))
                if number > 0 or line is not None:  # an instruction at a code's beginning has none
                    self.assertIn(line, lines[function], context["main_thread"])

    def test_from_a_forked_child(self):
        script = self.folder / "job.py"  # the driver does not work in a child of its user
        script.write_text("import os\nif os.fork() == 0:\n    " +
                          "    ".join((CUDA + LIBRARY).splitlines(keepends=True)) +
                          "    assert library.make_on_native_thread() == 0\n"
                          "    os._exit(0)\n"
                          "assert os.wait()[1] == 0\n")
        result = self.run_job(sys.executable, script)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        context = next(made(trace)[0] for trace in self.dump() if made(trace))
        self.assertEqual(context["main_thread"], [[str(script), 8, "<module>"]])
        self.assertRegex(context["main_thread_source"], "^walker ")


with_each(PythonMainThread, "waiting", INTERPRETERS)
with_each(PythonMainThread, "busy", INTERPRETERS)


class PythonEnding(ShimTest):
    """Contexts at every point of an interpreter's end: nothing crashes, nothing is made up."""

    def run_script(self, python, text):
        path = self.folder / "job.py"
        path.write_text(CUDA + LIBRARY + text)
        result = self.run_job(python, path)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"", b""))
        return path, made(self.one_trace())

    def own_frames(self, name, python):
        path, contexts = self.run_script(
            python,
            "import atexit, sys\n"
            "def make():\n"
            "    assert cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) == 0\n"
            "class Late:\n"
            "    make = staticmethod(make)\n"
            "    def __del__(self):\n"
            "        self.make()\n"
            "atexit.register(make)\n"
            "sys.late = Late()\n")
        self.assertGreaterEqual(len(contexts), 1)  # whether modules' values are deleted is not promised
        self.assertEqual(contexts[0]["python"], [[str(path), 8, "make"]])
        for context in contexts:
            self.assertEqual(context["source"], walker(name))

    def daemon_threads(self, name, python):
        # Each sleeps in C, without the GIL, and makes its context when the interpreter is further on
        # its way out, or gone; it keeps the process until the last one has.
        path, contexts = self.run_script(
            python,
            "import threading, time\n"
            "library.linger_at_exit_ms(800)\n"
            "class Late:\n"
            "    sleep = staticmethod(time.sleep)\n"
            "    def __del__(self):\n"
            "        self.sleep(0.3)\n"
            "late = Late()\n"
            "for ms in range(0, 700, 20):\n"
            "    threading.Thread(target=library.make_after_ms, args=(ms,), daemon=True).start()\n")
        self.assertEqual(len(contexts), 35)
        for context in contexts:
            self.assertRegex(context["source"],
                             "^walker |^no Python state on this thread|^no Python frame on this thread")
            for file, line, function in context["python"]:
                self.assertRegex(f"{file}:{line}", r"threading\.py:[0-9]+$")
                self.assertIn(function, ("run", "_bootstrap", "_bootstrap_inner"))


with_each(PythonEnding, "own_frames", INTERPRETERS)
with_each(PythonEnding, "daemon_threads", INTERPRETERS)


def build_of(python):
    """What the interpreter is made of: version, shared library (empty when it has none), prefix."""
    script = ("import os, sys, sysconfig as s\n"
              "shared = s.get_config_var('Py_ENABLE_SHARED')\n"
              "print(os.path.join(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME')) if shared else '')\n"
              "print(sys.base_prefix)\n")
    lines = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    return pathlib.Path(lines[0]) if lines[0] else None, lines[1]


class PythonOfOtherMake(ShimTest):
    """Embedded, stripped, patched and unknown interpreters."""

    SCRIPT = ("def größe():\n"
              "    assert cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) == 0\n"
              "größe()\n")

    def shared(self, *names):
        """An interpreter with a shared library: name, path, library, prefix."""
        for name in names:
            python = interpreter(name)
            library, prefix = build_of(python) if python else (None, None)
            if library and library.exists():
                return name, python, library, prefix
        self.skip("shared " + "/".join(names), "not installed")
        return None

    def run_script(self, python, **options):
        path = self.folder / "jöb.py"
        path.write_text(CUDA + self.SCRIPT, encoding="utf-8")
        result = self.run_job(python, path, **options)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"", b""))
        return [[str(path), 5, "größe"], [str(path), 6, "<module>"]], made(self.one_trace())[0]

    def patched(self, library, version):
        """A copy of the library, first on the job's path, that says it is of another version."""
        text = subprocess.run(["nm", "-D", str(library)], capture_output=True, text=True, check=True).stdout
        address = next(int(line.split()[0], 16) for line in text.splitlines() if line.endswith(" R Py_Version"))
        data = bytearray(library.read_bytes())
        # Constants lie in the file where they lie in memory.
        self.assertEqual(data[address + 3], 3)
        data[address:address + 4] = (3 << 24 | version << 16).to_bytes(4, sys.byteorder)
        (self.lib / library.name).write_bytes(data)

    def test_embedded(self):
        _, _, library, prefix = self.shared("python3.12", "python3.13", "python3.11", "python3.10")
        env = {"PYTHONHOME": prefix}

        def contexts(mode):
            shutil.rmtree(self.trace)
            self.trace.mkdir()
            result = self.run_job(HERE / "embed_python", library, mode, env=env)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"", b""), mode)
            return [(c["python"], c["source"], c["main_thread_source"]) for c in made(self.one_trace())]

        frames = [["<string>", 3, "make"], ["<string>", 4, "<module>"]]
        name = "walker " + ".".join(library.name.removeprefix("libpython").split(".")[:2])
        none = "no Python state on this thread"
        ended = ([], none, "the interpreter tells no threads")
        self.assertEqual(contexts("main"),
                         [(frames, name, ""), ([], none, "it runs no Python code"), ended])
        # The program's main thread has nothing to do with Python here.
        self.assertEqual(contexts("other"), [(frames, name, "it has none"), ([], none, "it has none"), ended])

    def test_stripped(self):
        name, python, library, _ = self.shared("python3.12", "python3.11", "python3.13", "python3.10")
        subprocess.run(["strip", "-s", "-o", str(self.lib / library.name), str(library)], check=True)
        frames, context = self.run_script(python)
        self.assertEqual((context["python"], context["source"]), (frames, walker(name)))

    def test_of_an_unknown_version_that_can_dump(self):
        _, python, library, _ = self.shared("python3.12", "python3.11")
        self.patched(library, 99)
        frames, context = self.run_script(python)
        self.assertEqual((context["python"], context["source"]),
                         (frames, "_Py_DumpTraceback, Python 3.99: layout unknown"))

    def test_of_an_unknown_version_that_cannot_dump(self):
        _, python, library, _ = self.shared("python3.13")
        self.patched(library, 99)
        _, context = self.run_script(python)
        self.assertEqual((context["python"], context["source"]), ([], "Python 3.99: layout unknown"))
        self.assertTrue(context["native"])

    def test_that_is_not_the_version_it_says(self):
        _, python, library, _ = self.shared("python3.12", "python3.11")
        self.patched(library, 11 if "3.12" in library.name else 12)
        frames, context = self.run_script(python)
        self.assertEqual(context["python"], frames)
        self.assertRegex(context["source"], r"^_Py_DumpTraceback, Python 3\.1[12]: self-test failed: ")

    def test_too_old_for_the_walker(self):
        for name in ("python3.6", "python3.7"):
            python = interpreter(name)
            if python:
                frames, context = self.run_script(python, env={"PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"})
                self.assertEqual((context["python"], context["source"]),
                                 (frames, f"_Py_DumpTraceback, Python {name[6:]}: layout unknown"))
                return
        self.skip("python3.7", "not installed")

    def test_too_new_for_the_walker(self):
        python = interpreter("python3.15")
        if python is None:
            self.skip("python3.15", "not installed")
        _, context = self.run_script(python)
        self.assertEqual((context["python"], context["source"]), ([], "Python 3.15: layout unknown"))

    def test_a_dumped_stack_is_cut_like_any_other(self):
        _, python, library, _ = self.shared("python3.12", "python3.11")
        self.patched(library, 99)
        path = self.folder / ("x" * 200 + ".py")
        path.write_text(CUDA +
                        "def deep(depth):\n"
                        "    if depth:\n"
                        "        return deep(depth - 1)\n"
                        "    assert cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) == 0\n"
                        "deep(80)\n")
        result = self.run_job(python, path)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        context = made(self.one_trace())[0]
        self.assertEqual(context["python"], [[str(path), 7, "deep"]] + [[str(path), 6, "deep"]] * 63)
        self.assertEqual(context["omitted"], 18)

    def test_without_descriptors_there_is_no_dump(self):
        _, python, library, _ = self.shared("python3.12", "python3.11")
        self.patched(library, 99)
        path = self.folder / "job.py"
        path.write_text(CUDA + "import resource\n"
                        "place = ctypes.c_void_p()\n"
                        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
                        "assert cuda.cuCtxCreate_v2(ctypes.byref(place), 0, 0) == 0\n")
        result = self.run_job(python, path)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        context = made(self.one_trace())[0]
        self.assertEqual((context["python"], context["source"]), ([], "Python 3.99: layout unknown"))

    def test_a_wrong_layout_is_refused_and_does_not_crash(self):
        for minor in (8, 9, 10, 11, 12, 13, 14):
            shutil.rmtree(self.trace)
            self.trace.mkdir()
            result = self.run_job(HERE / "fake_python", f"3.{minor}")
            self.assertEqual(result.returncode, 0)
            context = made(self.one_trace())[0]
            self.assertEqual(context["python"], [])
            self.assertRegex(context["source"], rf"^Python 3\.{minor}: ")
            self.assertTrue(context["native"])

    def test_threads_with_their_own_bytecode(self):
        # Laid out as a free-threaded 3.14: its frame runs the second copy of its code.
        result = self.run_job(HERE / "free_threaded_python")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        for context in made(self.one_trace()):
            self.assertEqual((context["python"], context["source"]),
                             ([["/job/größe.py", 42, "innen"], ["/job/größe.py", 7, "außen"]], "walker 3.14t"))


if __name__ == "__main__":
    run_tests("__main__")
