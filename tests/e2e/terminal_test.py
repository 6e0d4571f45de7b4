#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A terminal, a shell's job control and schedulers must see the job as they would without Corral.

usage: terminal_test.py BUILD_FOLDER [TEST…]
"""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build/release"
CORRAL = [os.path.join(BUILD, "corral"), "run", "-q", "--gpus", "none", "--"]
LIMIT_S = 20

# Prints a line for each signal it gets, by name, and "ready" first.
COUNTER = """
import os, signal, sys, time
def say(text): os.write(1, (text + "\\n").encode())
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), lambda number, frame: say(signal.Signals(number).name))
say("ready")
while True: time.sleep(0.05)
"""


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("CORRAL_")}
    env.update(PATH=BUILD + os.pathsep + env["PATH"], PS1="shell> ", TERM="dumb", HISTFILE="/dev/null")
    return env


class Shell:
    """An interactive bash on a terminal of its own."""

    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environment())
        self.text = ""
        self.wait_for(r"shell> ")

    def wait_for(self, pattern, limit_s=LIMIT_S):
        end = time.monotonic() + limit_s
        while True:
            found = re.search(pattern, self.text)
            if found:
                self.text = self.text[found.end():]
                return found
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"no {pattern!r} in {self.text!r}")
            try:
                self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
            except OSError:
                raise AssertionError(f"the terminal closed before {pattern!r}: {self.text!r}") from None

    def type(self, text):
        os.write(self.fd, text.encode())

    def close(self):
        os.close(self.fd)
        for _ in range(100):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return
            time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class TerminalTest(unittest.TestCase):
    def setUp(self):
        self.shell = Shell()
        self.addCleanup(self.shell.close)

    def run_line(self, line):
        self.shell.type(line + "\n")

    def test_interrupt_ends_the_job_as_it_does_alone(self):
        self.run_line("corral run -q --gpus none -- sleep 100; echo code=$?")
        time.sleep(0.5)
        self.shell.type("\x03")
        # bash itself ends the line at ^C when the program died of it; the code is asked afterwards.
        self.shell.wait_for(r"shell> |code=")
        self.run_line("echo alive")
        self.shell.wait_for(r"alive\r")

    def test_a_job_that_catches_interrupt_gets_it_once_and_goes_on(self):
        self.run_line(f"corral run -q --gpus none -- python3 -c '{COUNTER}' SIGINT SIGQUIT")
        self.shell.wait_for(r"ready\r")
        self.shell.type("\x03")
        self.shell.wait_for(r"SIGINT\r")
        self.shell.type("\x1c")
        seen = self.shell.wait_for(r"(?s)(.*)SIGQUIT\r").group(1)
        self.assertNotIn("SIGINT", seen, "the interrupt was delivered twice")

    def test_stop_and_continue_from_the_shell(self):
        self.run_line("corral run -q --gpus none -- sleep 100")
        time.sleep(0.5)
        self.shell.type("\x1a")
        self.shell.wait_for(r"Stopped")
        self.shell.wait_for(r"shell> ")
        self.run_line("fg")
        time.sleep(0.5)
        self.shell.type("\x03")
        self.shell.wait_for(r"shell> ")
        self.run_line("jobs; echo none-left")
        self.shell.wait_for(r"none-left\r")

    def test_a_job_in_the_background_is_stopped_when_it_reads(self):
        self.run_line("corral run -q --gpus none -- cat &")
        self.shell.wait_for(r"shell> ")
        # The shell tells of it at a prompt, and the job may take its time to start.
        self.run_line("while ! jobs | grep -q Stopped; do sleep 0.1; done; echo it-$((1+1))")
        self.shell.wait_for(r"it-2\r")
        self.run_line("kill %1; fg; echo done=$?")
        self.shell.wait_for(r"done=")

    def test_the_job_may_read_the_terminal_and_is_in_the_foreground(self):
        self.run_line("corral run -q --gpus none -- python3 -c 'import os; print(os.getpgrp()==os.tcgetpgrp(0))'")
        self.shell.wait_for(r"True\r")
        self.run_line("corral run -q --gpus none -- sh -c 'read x; echo got-$x'")
        time.sleep(0.3)
        self.shell.type("word\n")
        self.shell.wait_for(r"got-word\r")

    def test_the_reader_of_a_pipeline_keeps_the_keyboard(self):
        self.run_line("corral run -q --gpus none -- seq 3 | (cat; read key </dev/tty; echo key-$key)")
        self.shell.wait_for(r"3\r")
        self.shell.type("k\n")
        self.shell.wait_for(r"key-k\r")

    def test_an_interactive_shell_works_as_the_job(self):
        self.run_line("corral run -q --gpus none -- bash --norc --noprofile -i")
        self.shell.wait_for(r"shell> ")
        self.run_line("echo inner-$((40+2))")
        self.shell.wait_for(r"inner-42\r")
        self.run_line("sleep 100")
        time.sleep(0.4)
        self.shell.type("\x1a")
        self.shell.wait_for(r"Stopped")
        self.run_line("kill %1; exit 6; exit 6")  # a job that is still stopped holds the first one back
        self.run_line("echo outer=$?")
        self.shell.wait_for(r"outer=6\r")

    def test_the_size_of_the_window_reaches_the_job(self):
        self.run_line(f"corral run -q --gpus none -- python3 -c '{COUNTER}' SIGWINCH")
        self.shell.wait_for(r"ready\r")
        import fcntl
        import struct
        import termios
        fcntl.ioctl(self.shell.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.shell.wait_for(r"SIGWINCH\r")


class SignalTest(unittest.TestCase):
    def start(self, *signals):
        process = subprocess.Popen(CORRAL + [sys.executable, "-c", COUNTER, *signals], stdout=subprocess.PIPE,
                                   env=environment(), start_new_session=True, text=True)
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()

    def lines(self, process, marker="SIGUSR2"):
        """What the job said until the marker, which is sent to it last."""
        time.sleep(0.3)
        os.kill(process.pid, getattr(signal, marker))
        said = []
        while True:
            line = process.stdout.readline().strip()
            self.assertNotEqual(line, "", f"the job ended after {said}")
            if line == marker:
                return said
            said.append(line)

    def test_a_signal_to_corral_reaches_the_job(self):
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGCONT"):
            process = self.start(name, "SIGUSR2")
            os.kill(process.pid, getattr(signal, name))
            self.assertEqual(self.lines(process), [name])

    def test_a_signal_to_the_group_reaches_the_job_once(self):
        for name in ("SIGTERM", "SIGINT", "SIGUSR1"):
            process = self.start(name, "SIGUSR2")
            os.killpg(process.pid, getattr(signal, name))
            self.assertEqual(self.lines(process), [name])

    def test_a_parent_in_the_same_group_can_end_the_job(self):
        script = ("import signal, subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE);"
                  "p.stdout.readline(); p.terminate(); print(p.wait(20))")
        done = subprocess.run([sys.executable, "-c", script, *CORRAL, "sh", "-c", "echo up; exec sleep 100"],
                              env=environment(), capture_output=True, text=True, timeout=LIMIT_S * 2)
        self.assertEqual(done.stdout, f"{128 + signal.SIGTERM}\n")

    def test_timeout_ends_the_job(self):
        done = subprocess.run(["timeout", "1", *CORRAL, "sleep", "100"], env=environment(), timeout=LIMIT_S)
        self.assertEqual(done.returncode, 124)

    def test_a_stopped_job_can_be_continued_by_its_own_pid(self):
        process = subprocess.Popen(CORRAL + ["sh", "-c", "echo $$; exec sleep 1"], stdout=subprocess.PIPE,
                                   env=environment(), text=True)
        pid = int(process.stdout.readline())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(process.wait(LIMIT_S), 0)
        process.stdout.close()

    def test_an_alarm_set_before_exec_is_the_jobs(self):
        done = subprocess.run(["python3", "-c", "import os,signal,sys; signal.alarm(1); os.execv(sys.argv[1], sys.argv[1:])",
                               *CORRAL, "sleep", "100"], env=environment(), timeout=LIMIT_S)
        self.assertEqual(done.returncode, 128 + signal.SIGALRM)

    def test_ignored_signals_stay_ignored(self):
        done = subprocess.run(["nohup", *CORRAL, "grep", "SigIgn", "/proc/self/status"], env=environment(),
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertTrue(int(done.stdout.split()[1], 16) & 1, done.stdout)
        plain = subprocess.run([*CORRAL, "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"], env=environment(),
                               capture_output=True, text=True, timeout=LIMIT_S)
        alone = subprocess.run(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"], env=environment(),
                               capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(plain.stdout, alone.stdout)

    def test_the_job_inherits_exactly_the_descriptors_that_corral_was_given(self):
        script = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])"
        with open("/dev/null") as extra:
            plain = subprocess.run([sys.executable, "-c", script], pass_fds=[extra.fileno()], capture_output=True,
                                   text=True)
            inside = subprocess.run([*CORRAL, sys.executable, "-c", script], pass_fds=[extra.fileno()],
                                    capture_output=True, text=True, env=environment())
        self.assertEqual(inside.stdout, plain.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
