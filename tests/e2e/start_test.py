#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Corral is started from odd places: below a process that had children, with closed descriptors, as the first process
of a pid namespace, under a flood of signals. The job must see and get what it would without Corral.

usage: start_test.py BUILD_FOLDER [TEST…]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/release"
CORRAL = os.path.join(BUILD, "corral")
SIM = [os.path.join(BUILD, "sim", "corral-sim"), "h200x2", "--"]
LIMIT_S = 30


class StartTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.report = os.path.join(self.folder.name, "report.json")

    def orphans(self):
        with open(self.report) as report:
            return json.load(report)["orphans"]

    def test_children_from_before_are_not_the_jobs(self):
        # With the long grace a job that is waited for would run into the limit.
        script = 'sleep 60 & echo $!; exec "$@"'
        done = subprocess.Popen(["sh", "-c", script, "sh", CORRAL, "run", "--gpus", "none", "--grace", "300",
                                 "--report", self.report, "--", "true"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        sleeper = int(done.stdout.readline())
        try:
            self.assertEqual(done.wait(LIMIT_S), 0)
            self.assertEqual(self.orphans(), [])
            os.kill(sleeper, 0)
        finally:
            done.kill()
            os.kill(sleeper, signal.SIGKILL)
            done.communicate()

    def test_orphans_beside_children_from_before_are_the_jobs(self):
        script = 'sleep 60 & exec "$@"'
        process = subprocess.Popen(["sh", "-c", script, "sh", CORRAL, "run", "--gpus", "none", "--grace", "0.1",
                                    "--report", self.report, "--", "sh", "-c", "sleep 61 & "],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            self.assertEqual(process.wait(LIMIT_S), 0)
            self.assertEqual([orphan["process"] for orphan in self.orphans()], ["sleep 61"])
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def test_a_flood_of_signals_does_not_delay_the_end(self):
        process = subprocess.Popen([CORRAL, "run", "-q", "--gpus", "none", "--", "sh", "-c",
                                    "trap '' USR1; echo up; exec sleep 0.3"], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        end = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < end:
            process.send_signal(signal.SIGUSR1)
        ended = process.poll()
        process.kill()
        process.communicate()
        self.assertEqual(ended, 0, "it did not end while the signals came")

    def test_closed_standard_descriptors_stay_closed_for_the_job(self):
        path = os.path.join(self.folder.name, "seen")
        script = f"import os; open({path!r}, 'w').write(str(sorted(map(int, os.listdir('/proc/self/fd')))))"
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            seen = []
            for command in ([], [CORRAL, "run", "--gpus", "none", "--"], [CORRAL, "run", "--exec", "--gpus", "none", "--"]):
                done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command, sys.executable, "-c", script],
                                      capture_output=True, timeout=LIMIT_S)
                self.assertEqual(done.returncode, 0, (command, closed, done.stderr))
                with open(path) as text:
                    seen.append(text.read())
            self.assertEqual(seen, [seen[0]] * 3, closed)

    def test_closed_standard_descriptors_are_not_used_for_corrals_own_files(self):
        path = os.path.join(self.folder.name, "seen")
        script = (f"import os; parent = '/proc/%d/fd/' % os.getppid();"
                  f"open({path!r}, 'w').write(' '.join(os.readlink(parent + str(i)) for i in range(3)))")
        subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", CORRAL, "run", "--gpus", "none", "--",
                        sys.executable, "-c", script], timeout=LIMIT_S, check=True)
        with open(path) as text:
            self.assertEqual(text.read(), "/dev/null /dev/null /dev/null")

    def test_as_the_first_process_a_signal_of_the_job_is_not_sent_back(self):
        script = ("import os, signal, time; got = []; signal.signal(signal.SIGUSR1, lambda *a: got.append(1));"
                  "os.kill(os.getppid(), signal.SIGUSR1); time.sleep(0.5); print(os.getppid(), got)")
        done = subprocess.run(["unshare", "--mount-proc", "--pid", "--fork", CORRAL, "run", "-q", "--gpus", "none", "--",
                               sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S)
        if "unshare" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.stdout, "1 []\n", done.stderr)

    def test_a_start_in_another_pid_namespace_leaves_the_folder_of_a_run_alone(self):
        first = 'echo >up; read x <go; test -d "$CORRAL_TRACE_DIR" && echo kept'
        script = ('mkfifo up go; "$0" run -q --gpus 1 -- sh -c "$1" & read x <up;'
                  'unshare --mount-proc --pid --fork "$0" run -q --gpus 1 -- true; echo >go; wait')
        done = subprocess.run([*SIM, "sh", "-c", script, CORRAL, first], capture_output=True, text=True,
                              cwd=self.folder.name, timeout=LIMIT_S)
        if "unshare" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual(done.stdout, "kept\n", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
