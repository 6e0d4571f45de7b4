# SPDX-License-Identifier: Apache-2.0
"""What goes wrong around a job is not the job's trouble. `trouble_test.py CLASS…` runs those classes."""
import sys

from shim_test import HERE, ShimTest, made, run_tests


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


if __name__ == "__main__":
    run_tests("__main__")
