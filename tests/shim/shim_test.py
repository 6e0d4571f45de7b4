# SPDX-License-Identifier: Apache-2.0
"""The shim in real programs, in front of the simulated driver: what they do must not change, and
what they did must be in their traces. `shim_test.py CLASS…` runs those classes."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ.get("CORRAL_BUILD", "build/release")).resolve()
SOURCE = pathlib.Path(os.environ.get("CORRAL_SOURCE", ".")).resolve()
HERE = BUILD / "tests/shim"
SHIM = BUILD / "lib/corral/libcuda.so.1"
SIM = BUILD / "sim/libcuda.so.1"
MUST_WORK = os.environ.get("CORRAL_MUST_WORK", "").split(",")


class ShimTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        base = BUILD / "tests/shim/tmp"
        base.mkdir(exist_ok=True)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=self._testMethodName[:40] + ".", dir=base))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.trace = self.folder / "trace"
        self.trace.mkdir()
        self.lib = self.folder / "lib"
        self.make_library_folder(SIM)

    def make_library_folder(self, driver):
        shutil.rmtree(self.lib, ignore_errors=True)
        self.lib.mkdir()
        (self.lib / "libcuda.so.1").symlink_to(SHIM)
        (self.lib / "libcuda.so").symlink_to("libcuda.so.1")
        (self.lib / "libcorral-driver.so").symlink_to(driver)

    def skip(self, feature, reason):
        if feature in MUST_WORK:
            self.fail(f"{feature} must work here: {reason}")
        self.skipTest(f"{feature}: {reason}")

    def run_job(self, *command, shim=True, trace_dir=None, env=None, timeout=120):
        """Runs a command on the simulated machine: its result, with bytes for output."""
        variables = {"LD_LIBRARY_PATH": str(self.lib if shim else self.real_folder())}
        if shim:
            variables["CORRAL_TRACE_DIR"] = str(self.trace if trace_dir is None else trace_dir)
        variables.update(env or {})
        words = [str(BUILD / "sim/corral-sim"), "h200x2", "--", "env"]
        words += [f"{name}={value}" for name, value in variables.items()]
        words += [str(word) for word in command]
        return subprocess.run(words, capture_output=True, timeout=timeout, check=False)

    def real_folder(self):
        folder = self.folder / "real"
        if not folder.exists():
            folder.mkdir()
            (folder / "libcuda.so.1").symlink_to(SIM)
            (folder / "libcuda.so").symlink_to("libcuda.so.1")
        return folder

    def client(self, *arguments, program="shim_client", **options):
        result = self.run_job(HERE / program, *arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, b""), arguments)
        return result

    def dump(self, *options):
        text = subprocess.run([str(HERE / "trace_dump"), *options, str(self.trace)],
                              capture_output=True, check=True).stdout
        found = json.loads(text)
        self.assertEqual(found["errors"], [])
        return found["traces"]

    def one_trace(self):
        traces = self.dump()
        self.assertEqual(len(traces), 1)
        self.assertIsNone(traces[0]["damage"])
        self.assertEqual((traces[0]["cut"], traces[0]["lost"]), (False, 0))
        return traces[0]


def made(trace, result=0):
    return [c for c in trace["contexts"] if not c["ended"] and c["result"] == result]


def hooks_of_the_shim():
    """(exported name, base name, CUDA version) of every wrapped function, as the sources have them."""
    for path in sorted((SOURCE / "src/shim/hooks").glob("*.cc")):
        yield from re.findall(r'^CORRAL_HOOK(?:_PER_THREAD)?\((\w+), "(\w+)", (\d+)\);', path.read_text(),
                              re.MULTILINE)


class Library(ShimTest):
    """The file itself: what it needs and what it shows."""

    def read(self, *command):
        return subprocess.run(command, capture_output=True, text=True, check=True,
                              env={**os.environ, "LC_ALL": "C"}).stdout

    def test_needs_libc_and_the_driver_only(self):
        dynamic = self.read("readelf", "-dW", str(SHIM))
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        self.assertEqual(sorted(needed), ["libc.so.6", "libcorral-driver.so"])
        self.assertEqual(re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libcuda.so.1"])
        self.assertEqual(re.findall(r"\(RUNPATH\).*\[(.*)\]", dynamic), ["$ORIGIN"])
        self.assertNotIn("TEXTREL", dynamic)

    def test_exports_exactly_the_hooks(self):
        hooks = {name for name, _, _ in hooks_of_the_shim()}
        symbols = self.read("nm", "-D", "--defined-only", str(SHIM))
        exported = {line.split()[-1] for line in symbols.splitlines()}
        self.assertEqual(exported, hooks)
        self.assertGreaterEqual(len(hooks), 51)

    def test_asks_for_no_symbol_newer_than_glibc_2_17(self):
        symbols = self.read("nm", "-D", "--undefined-only", str(SHIM))
        versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", symbols)]
        self.assertTrue(versions)
        self.assertLessEqual(max(versions), (2, 17))

    def test_uses_no_thread_local_storage_and_no_constructor(self):
        self.assertNotIn("TLS", self.read("readelf", "-lW", str(SHIM)))
        sizes = re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", self.read("readelf", "-dW", str(SHIM)))
        self.assertEqual(sizes, ["8"])  # the compiler's own frame_dummy

    def test_declarations_agree_with_the_real_headers(self):
        header = next((p for p in pathlib.Path("/usr/local").glob("cuda*/include/cudaTypedefs.h")),
                      None)
        if header is None:
            self.skip("cuda-headers", "no cudaTypedefs.h under /usr/local")
        known = header.read_text()
        for name in ("cudaGLTypedefs.h", "cudaVDPAUTypedefs.h"):
            known += (header.parent / name).read_text()
        for name, base, since in hooks_of_the_shim():
            form = "_ptsz" if name.endswith("_ptsz") else ""
            self.assertRegex(known, rf"\bPFN_{base}_v{since}{form}\b")


class Paths(ShimTest):
    """Every way to the driver is seen."""

    def test_both_names(self):
        for name in ("libcuda.so.1", "libcuda.so"):
            self.client("use", name)
        traces = self.dump()
        self.assertEqual([len(made(t)) for t in traces], [1, 1])

    def test_deepbind(self):
        self.client("use", "libcuda.so.1", "deepbind")
        self.assertEqual(len(made(self.one_trace())), 1)

    def test_linked_directly(self):
        result = self.run_job(BUILD / "tests/programs/cuda_linked")
        self.assertEqual(result.returncode, 0)
        contexts = self.one_trace()["contexts"]
        self.assertEqual([c["function"] for c in contexts], ["cuCtxCreate_v4", "cuCtxDestroy_v2"])
        self.assertEqual(contexts[0]["context"], contexts[1]["context"])

    def test_as_the_runtime_asks(self):
        self.assertEqual(self.run_job(BUILD / "tests/programs/cuda_getproc").returncode, 0)
        trace = self.one_trace()
        self.assertEqual([c["function"] for c in made(trace)], ["cuDevicePrimaryCtxRetain"])

    def test_opened_twice_is_one_library(self):
        self.client("twice")
        self.assertEqual(len(made(self.one_trace())), 1)

    def ask(self, form, *questions):
        words = [str(word) for question in questions for word in question]
        result = self.run_job(HERE / "proc_address", form, *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.decode().split()

    def test_get_proc_address_replaces_what_is_wrapped_and_nothing_else(self):
        for form in ("4", "5"):
            answers = self.ask(form, ("cuInit", 2000, 0), ("cuMemAlloc", 3020, 0),
                               ("cuDevicePrimaryCtxRetain", 7000, 2), ("cuCtxCreate", 3020, 0),
                               ("cuGetProcAddress", 12000, 0), ("cuMemAllocAsync", 11020, 0),
                               ("cuMemAllocAsync", 11020, 2), ("cuDeviceGetCount", 2000, 0),
                               ("cuStreamSynchronize", 7000, 2), ("cuMemAllo", 3020, 0), ("", 12000, 0))
            self.assertEqual(answers[:7], ["wrapped"] * 7)
            self.assertEqual(answers[7:], ["driver", "driver", "none", "none"])

    def test_the_per_thread_form_is_answered_with_its_own_wrapper(self):
        self.make_library_folder(HERE / "libmemory_driver.so")
        script = ("import ctypes;c=ctypes.CDLL('libcuda.so.1');a=ctypes.c_uint64();c.cuInit(0);"
                  "print(c.cuMemAllocAsync_ptsz(ctypes.byref(a),ctypes.c_uint64(9),None))")
        self.assertEqual(self.run_job(sys.executable, "-c", script).stdout, b"0\n")
        self.assertEqual(self.one_trace()["allocations"][0]["function"], "cuMemAllocAsync_ptsz")

    def test_an_old_driver_has_no_new_functions(self):
        self.make_library_folder(HERE / "libold_driver.so")
        answers = self.ask("4", ("cuCtxCreate", 3020, 0), ("cuCtxCreate", 12050, 0),
                           ("cuGreenCtxCreate", 12040, 0), ("cuGetProcAddress", 11030, 0))
        # The newest form of cuCtxCreate that this driver has is _v2, whatever it is asked for.
        self.assertEqual(answers, ["wrapped", "wrapped", "none", "wrapped"])
        script = ("import ctypes;c=ctypes.CDLL('libcuda.so.1');"
                  "print(c.cuCtxCreate_v4(None,None,0,0),c.cuGreenCtxDestroy(None))")
        result = self.run_job(sys.executable, "-c", script)
        self.assertEqual((result.stdout, result.stderr), (b"500 500\n", b""))

    def test_a_form_that_we_do_not_know_passes_through(self):
        self.make_library_folder(HERE / "libnew_driver.so")
        answers = self.ask("5", ("cuCtxCreate", 12050, 0), ("cuCtxCreate", 14000, 0),
                           ("cuMemAlloc", 3020, 0), ("cuMemAlloc", 3020, 2))
        self.assertEqual(answers, ["wrapped", "driver", "wrapped", "driver"])


class Records(ShimTest):
    """What the traces say."""

    def test_header_names_the_process(self):
        self.client("use", "libcuda.so.1")
        trace = self.one_trace()
        self.assertEqual(trace["exe"], str(HERE / "shim_client"))
        self.assertEqual(trace["argv"][1:], ["use", "libcuda.so.1"])
        self.assertEqual(trace["cwd"], os.getcwd())
        self.assertEqual(trace["pid_namespace"], os.stat("/proc/self/ns/pid").st_ino)
        name = next(self.trace.glob("*.trace")).name
        self.assertEqual(name, f"{trace['pid']}-{trace['start']}.trace")
        self.assertTrue(trace["exited"])

    def test_init_keeps_the_variables_as_they_were(self):
        self.client("use", "libcuda.so.1",
                    env={"CUDA_VISIBLE_DEVICES": "1", "LOCAL_RANK": "3", "RANK": ""})
        init = self.one_trace()["inits"][0]
        self.assertEqual(init["result"], 0)
        self.assertEqual(init["variables"], {
            "CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": None, "LOCAL_RANK": "3", "RANK": "",
            "SLURM_LOCALID": None, "OMPI_COMM_WORLD_LOCAL_RANK": None, "MPI_LOCALRANKID": None})

    def test_a_failed_init_is_recorded(self):
        result = self.run_job(HERE / "shim_client", "use", "libcuda.so.1",
                              env={"CUDA_VISIBLE_DEVICES": "none"})
        self.assertEqual(result.returncode, 1)
        init = self.one_trace()["inits"][0]
        self.assertEqual((init["result"], init["variables"]["CUDA_VISIBLE_DEVICES"]), (100, "none"))

    def test_a_variable_set_too_late_is_seen(self):
        self.client("late")
        before, after = made(self.one_trace())
        self.assertEqual(before["variables"], {})
        self.assertEqual(after["variables"], {"CUDA_VISIBLE_DEVICES": "1"})

    def test_every_kept_variable_and_the_folder_are_told_when_they_change(self):
        script = ("import ctypes,os;c=ctypes.CDLL('libcuda.so.1');p=ctypes.c_void_p();c.cuInit(0)\n"
                  "def make(): c.cuCtxCreate_v2(ctypes.byref(p),0,0)\n"
                  "make()\n"
                  "os.environ['LOCAL_RANK']='1'; os.environ['OTHER']='x'; del os.environ['RANK']; make()\n"
                  "os.environ['LOCAL_RANK']='0'; os.environ['RANK']='7'; os.chdir('/'); make()\n"
                  "os.environ['CUDA_DEVICE_ORDER']='PCI_BUS_ID'; make()\n")
        result = self.run_job(sys.executable, "-c", script, env={"LOCAL_RANK": "0", "RANK": "7"})
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        trace = self.one_trace()
        self.assertEqual([(c["variables"], c["cwd"]) for c in made(trace)],
                         [({}, ""), ({"LOCAL_RANK": "1", "RANK": None}, ""), ({}, "/"),
                          ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "/")])
        self.assertEqual(trace["inits"][0]["cwd"], "")

    def test_the_folder_of_cuinit_is_told_when_the_trace_was_opened_in_another(self):
        script = ("import ctypes,os;c=ctypes.CDLL('libcuda.so.1');p=ctypes.c_void_p()\n"
                  "c.cuCtxCreate_v2(ctypes.byref(p),0,0); os.chdir('/'); c.cuInit(0)\n")
        self.assertEqual(self.run_job(sys.executable, "-c", script).returncode, 0)
        self.assertEqual(self.one_trace()["inits"][0]["cwd"], "/")

    def test_the_device_is_the_gpu_and_not_its_number(self):
        self.client("use", "libcuda.so.1", env={"CUDA_VISIBLE_DEVICES": "1"})
        hidden = made(self.one_trace())[0]["device"]
        self.assertEqual((hidden["ordinal"], hidden["pci"]), (0, "0000:00:07.0"))
        self.assertRegex(hidden["uuid"], r"^2b685718-")

    def test_primary_context_is_made_once_and_ended_once(self):
        self.client("primary")
        contexts = self.one_trace()["contexts"]
        self.assertEqual([(c["ended"], c["primary"], c["found"]) for c in contexts],
                         [(False, True, False), (True, True, False), (False, True, False)])
        self.assertEqual(contexts[0]["context"], contexts[1]["context"])
        self.assertEqual([c["device"]["ordinal"] for c in contexts], [1, 1, 1])

    def test_memory_is_counted_by_device(self):
        self.client("memory")
        trace = self.one_trace()
        events = [(a["function"], a["bytes"], a["device"]["ordinal"], a["first"], a["large"])
                  for a in trace["allocations"]]
        self.assertEqual(events, [("cuMemAlloc_v2", 1000, 1, True, False),
                                  ("cuMemAlloc_v2", 64 << 20, 1, False, True),
                                  ("cuMemCreate", 2 << 20, 0, True, False)])
        zero, one = trace["counters"]["devices"]
        self.assertEqual((zero["now"], zero["peak"], zero["allocations"], zero["frees"]),
                         (0, 2 << 20, 1, 1))
        self.assertEqual((one["now"], one["peak"], one["allocations"], one["frees"]),
                         (64 << 20, (64 << 20) + 1000, 2, 1))

    def test_native_frames_name_files_and_places_in_them(self):
        self.client("use", "libcuda.so.1")
        frames = made(self.one_trace())[0]["native"]
        self.assertEqual(frames[0][0], "")  # the program itself
        offset = hex(frames[0][1])
        place = subprocess.run(["addr2line", "-f", "-e", str(HERE / "shim_client"), offset],
                               capture_output=True, text=True, check=True).stdout
        self.assertTrue(place.startswith(("make_context", "use", "main")), place)
        self.assertTrue(any("libc.so" in (path or "") for path, _ in frames))
        self.assertFalse(any("libcuda" in (path or "") for path, _ in frames))


class Life(ShimTest):
    """What jobs do, and what happens to them."""

    def test_fork_before_init(self):
        self.client("fork-before")
        trace = self.one_trace()  # the parent had nothing to tell
        self.assertEqual(len(made(trace)), 1)

    def test_fork_after_init(self):
        self.client("fork-after")
        traces = self.dump()
        parent = next(t for t in traces if made(t))
        child = next(t for t in traces if t is not parent)
        self.assertEqual(child["ppid"], parent["pid"])
        self.assertEqual([c["device"]["ordinal"] for c in made(parent)], [0, 1])
        self.assertEqual((made(child), len(child["contexts"])), ([], 1))

    def test_exec_begins_a_second_file(self):
        self.client("exec")
        first, second = self.dump()
        self.assertEqual((first["pid"], first["start"]), (second["pid"], second["start"]))
        self.assertEqual([t["argv"][1] for t in (first, second)], ["exec", "use"])
        self.assertEqual([t["exited"] for t in (first, second)], [False, True])
        names = sorted(p.name.split(".", 1)[1] for p in self.trace.iterdir())
        self.assertEqual(names, ["2.counters", "2.trace", "counters", "trace"])

    def test_64_threads_at_once(self):
        self.client("threads", "64")
        trace = self.one_trace()
        self.assertEqual(len(made(trace)), 64)
        self.assertEqual(len({c["tid"] for c in made(trace)}), 64)
        counters = trace["counters"]["devices"]
        self.assertEqual([c["allocations"] for c in counters], [6400, 6400])
        self.assertEqual([(c["now"], c["frees"]) for c in counters], [(0, 6400), (0, 6400)])

    def test_kill_9_keeps_all_that_was_written(self):
        result = self.run_job(HERE / "shim_client", "kill")
        self.assertEqual(result.returncode, -signal.SIGKILL)
        trace = self.one_trace()
        self.assertFalse(trace["exited"])
        self.assertEqual((len(trace["inits"]), len(made(trace))), (1, 1))
        self.assertEqual(trace["counters"]["devices"][0]["now"], 12345)

    def test_a_signal_handler_may_interrupt_anything(self):
        self.client("signals")
        trace = self.dump()[0]
        self.assertIsNone(trace["damage"])
        self.assertTrue(any(c["result"] != 0 for c in trace["contexts"]))

    def test_a_job_that_closes_the_driver_and_opens_it_again_is_observed_again(self):
        # Unloaded while the driver stays, the shim would not be found again: the driver has its name.
        for driver in (None, HERE / "libold_driver.so"):
            with self.subTest(driver=driver):
                if driver:
                    self.make_library_folder(driver)
                known = len(self.dump())
                self.client("reload", "5")
                fresh = self.dump()[known:]
                self.assertEqual([(len(made(t)), t["exited"]) for t in fresh], [(5, True)])

    def test_dlerror_is_left_alone(self):
        self.client("dlerror")

    def test_descriptors_that_the_job_closes_and_reuses(self):
        own = self.folder / "own"
        self.client("close", own)
        self.assertEqual(own.read_bytes(), b"")
        self.assertEqual(len(made(self.one_trace())), 1)

    def test_cancellation_does_not_act_inside(self):
        self.client("cancel")

    def test_a_small_stack_is_enough(self):
        self.client("small-stack")
        self.assertEqual(len(made(self.one_trace())), 1)

    def test_asan_job(self):
        result = self.run_job(HERE / "shim_client_asan", "threads", "4")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertEqual(len(made(self.one_trace())), 4)

    def test_valgrind_job(self):
        if shutil.which("valgrind") is None:
            self.skip("valgrind", "not installed")
        result = self.run_job("valgrind", "-q", "--error-exitcode=9",
                              f"--suppressions={SOURCE}/tests/shim/valgrind.supp", HERE / "shim_client",
                              "threads", "4")
        self.assertEqual(result.returncode, 0, result.stderr.decode())
        self.assertEqual(len(made(self.one_trace())), 4)


def run_tests(module):
    """Runs the named classes; 77 when all was skipped."""
    program = unittest.main(module=module, argv=[sys.argv[0], *sys.argv[1:]], exit=False, verbosity=1)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun and len(result.skipped) == result.testsRun else 0)


if __name__ == "__main__":
    run_tests("__main__")
