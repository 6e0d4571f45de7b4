#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Corral is killed, the job is killed, files go away: the job goes on, nothing is left behind that a second start
does not clean.

usage: faults_test.py BUILD_FOLDER [TEST…]
"""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from features import missing_features

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/release"
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CORRAL = os.path.join(BUILD, "corral")
SIM = [os.path.join(BUILD, "sim", "corral-sim"), "h200x2", "--"]
HOLD = os.path.join(BUILD, "tests", "programs", "cuda_hold")
LIMIT_S = 30


def needs(*features):
    """Skips a test, or fails it when CORRAL_MUST_WORK names what this machine lacks."""
    lacking = missing_features(features)
    must = set(os.environ.get("CORRAL_MUST_WORK", "").split(",")) & set(lacking)

    def decorate(test):
        if must:
            def failing(self):
                self.fail(f"this machine lacks {', '.join(sorted(must))}")
            return failing
        return unittest.skipIf(lacking, f"this machine lacks {', '.join(lacking)}")(test)
    return decorate


def wait_until(condition, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def cgroups():
    return sorted(glob.glob("/sys/fs/cgroup/**/corral-*", recursive=True))


def run_folders():
    return sorted(glob.glob("/run/corral/run-*"))


class FaultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(self.folder.cleanup)
        self.processes = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.processes:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

    def start(self, *argv):
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True, cwd=self.folder.name)
        self.processes.append(process)
        return process

    def start_again(self):
        """The next start of Corral, beside the simulated machine: another start of that would remove the old one."""
        return subprocess.run([CORRAL, "run", "-q", "--refuse", "/dev/full", "--", "true"], timeout=LIMIT_S, check=True)

    def kill_corral_under_a_job(self, *options):
        """Starts a job that prints its pid and waits, kills Corral, and returns the job's pid."""
        script = ("echo $$; while ! test -e go; do sleep 0.05; done; "
                  "(: <$CORRAL_SIM/dev/nvidia0) 2>err; cat err >result.part; mv result.part result")
        process = self.start(*SIM, CORRAL, "run", "-q", "--gpus", "1", *options, "--", "sh", "-c", script)
        job = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return job

    def result(self):
        path = os.path.join(self.folder.name, "result")
        open(os.path.join(self.folder.name, "go"), "w").close()
        self.assertTrue(wait_until(lambda: os.path.exists(path)), "the job did not go on")
        with open(path) as result:
            return result.read()

    @needs("landlock")
    def test_a_killed_corral_leaves_the_job_confined_by_landlock(self):
        self.kill_corral_under_a_job("--enforce", "landlock")
        self.assertIn("Permission denied", self.result())

    @needs("root", "cgroup2", "no-gpu")
    def test_a_killed_corral_leaves_the_job_confined_by_cgroup(self):
        job = self.kill_corral_under_a_job("--enforce", "cgroup")
        self.start_again()
        self.assertTrue(cgroups(), "the next start removed the group of a job that lives")
        self.assertIn("Operation not permitted", self.result())
        self.assertTrue(wait_until(lambda: not os.path.exists(f"/proc/{job}")))
        self.start_again()
        self.assertEqual(cgroups(), [])

    @needs("root")
    def test_the_next_start_removes_the_run_folder(self):
        process = self.start(*SIM, CORRAL, "run", "-q", "--gpus", "1", "--", "sh", "-c", "echo up; exec sleep 100")
        process.stdout.readline()
        self.assertTrue(run_folders())
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        again = [*SIM, CORRAL, "run", "-q", "--gpus", "1", "--", "true"]
        self.assertTrue(wait_until(lambda: subprocess.run(again, timeout=LIMIT_S, check=True) and run_folders() == []),
                        run_folders())

    def test_no_process_of_corral_outlives_it(self):
        process = self.start(CORRAL, "run", "-q", "--gpus", "none", "--", "sh", "-c", "echo $$; exec sleep 100")
        job = int(process.stdout.readline())
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            helpers = {int(pid) for pid in children.read().split()} - {job}
        self.assertTrue(helpers, "the canary is expected here")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        for pid in helpers:
            self.assertTrue(wait_until(lambda pid=pid: not os.path.exists(f"/proc/{pid}")), f"pid {pid} lives on")
        os.kill(job, signal.SIGKILL)

    def test_a_killed_job_is_reported(self):
        report = os.path.join(self.folder.name, "r.json")
        process = self.start(*SIM, CORRAL, "run", "--gpus", "1", "--report", report, "--", HOLD, "--seconds", "60", "0")
        self.assertIn("contexts", process.stdout.readline())
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            pids = [int(pid) for pid in children.read().split()]
        for pid in pids:
            with open(f"/proc/{pid}/cmdline", "rb") as command:
                if b"cuda_hold" in command.read():
                    os.kill(pid, signal.SIGKILL)
        self.assertEqual(process.wait(LIMIT_S), 128 + signal.SIGKILL)
        with open(report) as text:
            run = json.load(text)
        self.assertEqual(run["exit"], {"code": None, "signal": 9})
        self.assertEqual([gpu["contexts"] for gpu in run["gpus"]], [0, 1], "what was written before the kill is kept")

    def test_a_job_that_cannot_start_leaves_nothing_behind(self):
        groups, folders = cgroups(), run_folders()
        done = subprocess.run([*SIM, CORRAL, "run", "--gpus", "1", "--", "/no/such"], capture_output=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 127)
        self.assertLessEqual(set(cgroups()), set(groups))
        self.assertLessEqual(set(run_folders()), set(folders))

    def test_the_job_goes_on_when_its_trace_folder_vanishes(self):
        script = 'rm -rf "$CORRAL_TRACE_DIR"; exec "$0" 0'
        done = subprocess.run([*SIM, CORRAL, "run", "--gpus", "1", "--", "sh", "-c", script, HOLD], capture_output=True,
                              text=True, timeout=LIMIT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "contexts: 1\n"), done.stderr)

    def test_a_full_disk_under_the_report_is_told(self):
        done = subprocess.run([CORRAL, "run", "-q", "--gpus", "none", "--report", "/dev/full", "--", "true"],
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertIn("/dev/full", done.stderr)

    def test_a_closed_stderr_does_not_end_the_job_early(self):
        done = subprocess.run(["sh", "-c", f"{CORRAL} run --gpus none -- sh -c 'sleep 0.3; echo ran' 2>&-"],
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual((done.returncode, done.stdout), (0, "ran\n"))

    def test_unreadable_proc_is_no_crash(self):
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "sh", "-c",
                               f"mount -t tmpfs none /proc && {CORRAL} run --gpus none -- true; echo $?"],
                              capture_output=True, text=True, timeout=LIMIT_S)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest(done.stderr)
        self.assertIn(done.stdout.strip(), ("0", "125"), done.stderr)
        self.assertTrue(done.stdout.strip() == "0" or "/proc" in done.stderr, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
