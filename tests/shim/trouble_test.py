# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around a job is not the job's trouble. `trouble_test.py CLASS…` runs those classes."""
import os
import pathlib
import sys

from shim_test import BUILD, HERE, ShimTest, made, run_tests


class Trouble(ShimTest):
    """A trace that cannot be written changes nothing for the job."""

    def assert_same(self, *arguments, **options):
        plain = self.run_job(HERE / "shim_client", *arguments, shim=False)
        traced = self.run_job(HERE / "shim_client", *arguments, **options)
        self.assertEqual((plain.returncode, plain.stdout, plain.stderr),
                         (traced.returncode, traced.stdout, traced.stderr))
        self.assertEqual(plain.returncode, 0, plain.stderr)

    def test_no_folder_named(self):
        self.assert_same("use", "libcuda.so.1", trace_dir="")
        self.assert_same("threads", "8", trace_dir="")
        self.assertEqual(list(self.trace.iterdir()), [])

    def test_folder_is_missing(self):
        self.assert_same("use", "libcuda.so.1", trace_dir=self.folder / "nowhere")

    def test_folder_is_a_file(self):
        place = self.folder / "file"
        place.write_text("mine")
        self.assert_same("use", "libcuda.so.1", trace_dir=place)
        self.assertEqual(place.read_text(), "mine")

    def test_folder_is_relative(self):
        self.assert_same("use", "libcuda.so.1", trace_dir="trace")

    def test_folder_name_is_too_long(self):
        self.assert_same("use", "libcuda.so.1", trace_dir="/" + "x" * 5000)

    def test_folder_vanishes(self):
        script = ("import ctypes,os,shutil;c=ctypes.CDLL('libcuda.so.1');p=ctypes.c_void_p();"
                  "print(c.cuInit(0));shutil.rmtree(os.environ['CORRAL_TRACE_DIR']);"
                  "print(c.cuCtxCreate_v2(ctypes.byref(p),0,0))")
        result = self.run_job(sys.executable, "-c", script)
        self.assertEqual((result.stdout, result.stderr), (b"0\n0\n", b""))

    def test_file_size_limit_does_not_kill(self):
        self.assert_same("limit", "file-size")

    def test_no_descriptor_left(self):
        self.assert_same("limit", "files")
        self.assertEqual(len(made(self.dump()[0])), 20)

    def test_full_disk(self):
        place = self.folder / "small"
        place.mkdir()
        # 12 KiB: room for the header and the counters, not for twenty contexts.
        script = (f"mount -t tmpfs -o size=12k none {place} && {HERE}/shim_client limit none; "
                  f"rc=$?; cp {place}/* {self.trace}; exit $rc")
        result = self.run_job("unshare", "-rm", "sh", "-c", script, trace_dir=place)
        if b"unshare" in result.stderr or b"mount" in result.stderr:
            self.skip("userns", result.stderr.decode())
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"done\n", b""))
        trace = self.dump()[0]
        self.assertIsNone(trace["damage"])
        self.assertGreater(len(made(trace)), 0)
        self.assertEqual(len(made(trace)) + trace["lost"] + (0 if trace["exited"] else -1), 20)

    def test_output_and_exit_code_are_the_same(self):
        for situation in (["use", "libcuda.so"], ["fork-after"], ["exec"], ["threads", "16"],
                          ["memory"], ["primary"], ["limit", "none"], ["errno"]):
            self.assert_same(*situation)


class Moments(ShimTest):
    """Whatever a process does in the middle of a hook."""

    def moment(self, *arguments, **options):
        return self.client(*arguments, program="shim_moments", **options)

    def undamaged(self, at_least=1):
        traces = self.dump("--count")
        self.assertGreaterEqual(len(traces), at_least)
        for trace in traces:
            self.assertIsNone(trace["damage"])
            self.assertFalse(trace["cut"])
        return traces

    def test_fork_among_threads_that_are_in_hooks(self):
        self.moment("fork-among-threads", "40")
        traces = self.undamaged(41)
        self.assertEqual(sum(trace["inits"] for trace in traces), 1)

    def test_fork_in_the_middle_of_a_hook(self):
        self.make_library_folder(HERE / "libmemory_driver.so")  # has no lock that a fork could break
        self.moment("fork-within")
        traces = self.undamaged(31)
        self.assertEqual(len(traces), 31)
        children = [trace for trace in traces if not trace["inits"]]
        self.assertEqual([trace["contexts"] for trace in children], [1] * 30)

    def test_exec_from_a_thread_among_others_in_hooks(self):
        self.moment("exec-thread")
        traces = self.dump("--count")
        self.assertEqual([trace["damage"] for trace in traces], [None, None])
        self.assertTrue(traces[1]["exited"])

    def test_exit_while_threads_are_in_hooks(self):
        for _ in range(5):
            self.moment("exit-among-threads")
        self.assertEqual([trace["exited"] for trace in self.undamaged()], [True] * 5)

    def test_a_handler_that_exits_in_the_middle_of_a_hook(self):
        for _ in range(10):
            self.moment("exit-within", timeout=20)
        self.assertEqual([trace["exited"] for trace in self.undamaged()], [True] * 10)

    def test_a_handler_that_exits_while_the_driver_holds_its_lock(self):
        for _ in range(10):
            self.moment("exit-within-driver", timeout=20)
        self.assertEqual([trace["exited"] for trace in self.undamaged()], [True] * 10)

    def test_a_million_events_of_which_few_can_be_written(self):
        self.make_library_folder(HERE / "libmemory_driver.so")
        pairs = 500_000
        script = f"ulimit -f 65536; exec {HERE}/shim_moments many {pairs}"  # 32 MiB
        result = self.run_job("sh", "-c", script, timeout=280)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"", b""))
        [trace] = self.undamaged()
        self.assertGreater(trace["contexts"], 50_000)
        self.assertGreater(trace["lost"], 500_000)
        self.assertEqual(trace["inits"] + trace["contexts"] + trace["lost"] + trace["exited"], 2 * pairs + 2)


class Company(ShimTest):
    """What else a user loads."""

    def test_the_users_own_preload_is_kept(self):
        result = self.run_job(BUILD / "tests/programs/cuda_linked", env={"LD_PRELOAD": str(HERE / "libuser_preload.so")})
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertTrue(result.stdout.startswith(b"preload: 0\n"), result.stdout)
        self.assertEqual([c["function"] for c in made(self.one_trace())], ["cuCtxCreate_v4"])

    def test_the_users_own_library_path_is_kept(self):
        script = "import ctypes;ctypes.CDLL('libnative_thread.so');ctypes.CDLL('libcuda.so.1').cuInit(0)"
        result = self.run_job(sys.executable, "-c", script, env={"LD_LIBRARY_PATH": f"{self.lib}:{HERE}"})
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertEqual(len(self.one_trace()["inits"]), 1)

    def with_allocator(self, name):
        paths = [p for folder in ("/usr/lib", "/usr/lib64", "/usr/local/lib") if os.path.isdir(folder)
                 for p in pathlib.Path(folder).glob(f"{name}.so.*")]
        paths += pathlib.Path("/usr/lib").glob(f"*-linux-gnu/{name}.so.*")
        if not paths:
            self.skip(name, "not installed")
        preload = {"LD_PRELOAD": str(paths[0])}
        result = self.client("threads", "16", env=preload)
        self.assertEqual(result.stdout, b"")
        trace = self.one_trace()
        self.assertEqual(len(made(trace)), 16)
        self.assertTrue(all(c["native"] for c in made(trace)))
        for situation in (["fork-after"], ["signals"], ["exec"], ["small-stack"]):
            self.client(*situation, env=preload)
        script = ("import ctypes;c=ctypes.CDLL('libcuda.so.1');p=ctypes.c_void_p();c.cuInit(0);"
                  "print(c.cuCtxCreate_v2(ctypes.byref(p),0,0))")
        result = self.run_job(sys.executable, "-c", script, env=preload)
        self.assertEqual((result.stdout, result.stderr), (b"0\n", b""))

    def test_jemalloc(self):
        self.with_allocator("libjemalloc")

    def test_tcmalloc(self):
        self.with_allocator("libtcmalloc_minimal")


if __name__ == "__main__":
    run_tests("__main__")
