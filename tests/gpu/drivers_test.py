#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hardware tests must be able to fail: their judgement on made-up reports, with no GPU."""

import copy
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import attribution  # noqa: E402
import case_files  # noqa: E402
import cases_confined  # noqa: E402
import confined  # noqa: E402
import nvml  # noqa: E402
import process  # noqa: E402
import resnet  # noqa: E402
import results  # noqa: E402

GPU_0 = nvml.Gpu(0, "GPU-0", "NVIDIA H200", "0000:00:06.0", 0)
LEFT_ALONE = {
    "enforced": "cgroup",
    "refused": ["/dev/nvidia0"],
    "gpus": [
        {
            "index": 0,
            "allowed": False,
            "touched": False,
            "contexts": 0,
            "memory_min_bytes": 646 << 20,
            "memory_max_bytes": 646 << 20,
            "processes": [],
        }
    ],
}


def ended(code=0, stdout="", stderr="", timed_out=False):
    return process.Ended(code, stdout, stderr, 1.0, timed_out)


def judged(method="cgroup", **changes):
    report = copy.deepcopy(LEFT_ALONE)
    for key, value in changes.items():
        (report if key in report else report["gpus"][0])[key] = value
    return confined.wrongs(confined.Confined(ended(), report), method, [GPU_0])


class JudgesReports(unittest.TestCase):
    def setUp(self):
        os.environ.pop("CORRAL_SIM", None)

    def test_a_gpu_left_alone_is_fine(self):
        self.assertEqual(judged(), [])

    def test_each_sign_of_a_touch_is_a_failure(self):
        for field, value in {
            "contexts": 1,
            "touched": True,
            "allowed": True,
            "memory_max_bytes": 1141 << 20,
            "enforced": "none",
            "refused": [],
        }.items():
            with self.subTest(field):
                self.assertEqual(len(judged(**{field: value})), 1)

    def test_what_is_not_known_is_a_failure(self):
        for field in ("contexts", "touched", "memory_min_bytes"):
            with self.subTest(field):
                self.assertEqual(len(judged(**{field: None})), 1)
        self.assertIn("no GPU 0", judged(gpus=[])[0])
        none = confined.Confined(ended(125, stderr="corral: no GPU 1"), None, "no file")
        self.assertIn("corral: no GPU 1", confined.wrongs(none, "cgroup", [GPU_0])[0])

    def test_the_layers_are_the_ones_asked_for(self):
        for method, said, right in (
            ("cgroup", "cgroup", True),
            ("cgroup", "landlock+seccomp", False),
            ("landlock", "landlock+seccomp", True),
            ("landlock", "landlock", True),
            ("landlock", "cgroup+landlock+seccomp", False),
            ("mount", "mount", True),
            ("mount", "cgroup", False),
            ("tight", "cgroup+landlock+seccomp", True),
            ("tight", "landlock+seccomp", False),
            ("auto", "cgroup", True),
            ("auto", "none", False),
        ):
            with self.subTest(f"{method} {said}"):
                self.assertEqual(judged(method, enforced=said) == [], right)

    def test_a_process_that_is_not_the_jobs_is_told_apart(self):
        theirs, ours = {"pid": 7, "of_job": False}, {"pid": 8, "of_job": True}
        report = copy.deepcopy(LEFT_ALONE)
        report["gpus"][0]["processes"] = [theirs, ours]
        self.assertTrue(confined.disturbed(confined.Confined(ended(), report), [GPU_0]))
        report["gpus"][0]["processes"] = [ours]
        self.assertFalse(confined.disturbed(confined.Confined(ended(), report), [GPU_0]))


class JudgesOutcomes(unittest.TestCase):
    def setUp(self):
        text = (
            "# SPDX-License-Identifier: Apache-2.0\n# Situation: one\n#   and more\n# Intended: GPU 1\n"
            '# Strays to: GPU 0\n# Finding: stray.x\n# With one GPU: ends with "bad ordinal"\n# Adapted: cuda:1 -> cuda:0\n# Fix: none\n'
            'work("cuda:1")  # CULPRIT\n'
        )
        self.text = text
        self.case = case_files.parse("made-up", pathlib.Path("made-up.py"), text)

    def test_a_head_is_read(self):
        self.assertEqual(self.case.fails_with, "bad ordinal")
        self.assertEqual(self.case.adapted, ("cuda:1", "cuda:0"))
        self.assertEqual(self.case.culprit_lines, [10])
        self.assertEqual(self.case.findings, ["stray.x"])
        self.assertEqual((self.case.expected(), self.case.stray_gpus()), ("1", [0]))

    def test_a_bad_head_is_named(self):
        for old, new, said in (
            ("# Fix: none\n", "", "lacks Fix"),
            ("ends with", "fails with", "With one GPU"),
            ("cuda:1 -> cuda:0", "cuda:7 -> cuda:0", "Adapted"),
        ):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                case_files.parse("made-up", pathlib.Path("made-up.py"), self.text.replace(old, new))

    def test_the_error_of_one_gpu_is_wanted_as_written(self):
        outcome = cases_confined.wrong_outcome
        plain = ended(stdout='CASE {"role": "main", "result": 3}\n')
        self.assertEqual(outcome(self.case, plain, ended(1, stderr="x: bad ordinal"), False), [])
        self.assertEqual(len(outcome(self.case, plain, ended(1, stderr="another"), False)), 1)
        self.assertEqual(len(outcome(self.case, plain, plain, False)), 1)
        self.assertEqual(len(outcome(self.case, plain, ended(-9, timed_out=True), False)), 1)

    def test_the_same_result_is_wanted_when_adapted(self):
        outcome = cases_confined.wrong_outcome
        plain = ended(stdout='CASE {"role": "main", "result": 3}\n')
        other = ended(stdout='CASE {"role": "main", "result": 4}\n')
        self.assertEqual(outcome(self.case, plain, plain, True), [])
        self.assertEqual(len(outcome(self.case, plain, other, True)), 1)
        self.assertEqual(len(outcome(self.case, plain, ended(), True)), 1)
        self.assertEqual(len(outcome(self.case, plain, ended(2, plain.stdout), True)), 1)

    def test_every_case_has_a_head_and_strays_have_a_culprit(self):
        cases = case_files.load_all()
        self.assertGreaterEqual(len(cases), 40)
        for case in cases:
            with self.subTest(case.name):
                strays = bool(case.stray_gpus())
                self.assertTrue(strays or case.strays_to == "nothing")
                self.assertEqual(bool(case.findings), strays)
                self.assertEqual(len(case.culprit_lines), 1 if strays else 0)
                self.assertTrue(case.fails_with is None or case.adapted is not None)


class JudgesAttribution(unittest.TestCase):
    def setUp(self):
        text = (
            "# SPDX-License-Identifier: Apache-2.0\n# Situation: one\n# Intended: GPU 1\n# Strays to: GPU 0\n"
            "# Finding: stray.x\n# With one GPU: works\n# Fix: none\nchosen()  # CAUSE\nwork()  # CULPRIT\n"
        )
        self.case = case_files.parse("made-up", pathlib.Path("made-up.py"), text)
        self.control = case_files.parse(
            "made-up", pathlib.Path("made-up.py"),
            text.replace("GPU 0", "nothing").replace("stray.x", "none").replace("  # CULPRIT", ""))  # fmt: skip
        self.report = {
            "contexts": [{"stray": True, "gpu": 0, "pid": 7, "finding": "stray.x",
                          "culprit": {"file": "/job/made-up.py", "line": 9, "function": "f"}}],
            "findings": [{"id": "stray.x", "cause": "c", "verify": "v", "fix": "f", "evidence": ["made-up.py:8"]}],
        }  # fmt: skip

    def wrongs(self, case=None, code=0):
        stdout = 'CASE {"role": "main", "pid": 7, "result": 3}\n'
        return attribution.wrongs(case or self.case, attribution.Traced(ended(code, stdout), self.report))

    def test_all_that_is_named_right_is_right(self):
        self.assertEqual(self.wrongs(), [])

    def test_each_thing_that_is_wrong_is_told(self):
        context, finding = self.report["contexts"][0], self.report["findings"][0]
        for part, key, value in (
            (context, "stray", False), (context, "gpu", 1), (context, "pid", 8), (context, "finding", "stray.y"),
            (context, "culprit", None), (context["culprit"], "line", 8), (context["culprit"], "file", "/job/x.py"),
            (finding, "id", "stray.y"), (finding, "fix", ""), (finding, "evidence", ["made-up.py:9"]),
        ):  # fmt: skip
            with self.subTest(f"{key}={value}"):
                kept = part[key]
                part[key] = value
                self.assertNotEqual(self.wrongs(), [])
                part[key] = kept
        self.assertNotEqual(self.wrongs(code=1), [])
        self.report = None
        self.assertNotEqual(self.wrongs(), [])

    def test_of_a_control_nothing_is_said(self):
        self.assertNotEqual(self.wrongs(self.control), [])
        self.report = {"contexts": [], "findings": [{"id": "run.other-process"}]}
        self.assertEqual(self.wrongs(self.control), [])


class LeavesNothingRunning(unittest.TestCase):
    def test_a_job_in_a_group_of_its_own_is_ended_at_the_limit(self):
        # As Corral does: the parent ends at once on SIGTERM, the job in another group ignores it.
        job = "trap '' TERM; echo $$; exec sleep 100"
        script = f"set -m; trap 'exit 0' TERM; sh -c \"{job.replace('$', chr(92) + '$')}\" & wait"
        one = process.run(["bash", "-c", script], limit_s=1.5)
        self.assertTrue(one.timed_out)
        job = int(one.stdout.split()[0])
        deadline = time.monotonic() + 20
        while pathlib.Path("/proc", str(job)).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(pathlib.Path("/proc", str(job)).exists())

    def test_a_signal_is_told_as_a_shell_tells_it(self):
        one = process.run(["sh", "-c", "kill -9 $$"], limit_s=20)
        self.assertEqual((one.code, one.shell_code()), (-signal.SIGKILL, 137))


class WritesResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        corral = self.folder / "corral"
        corral.write_text("#!/bin/sh\necho corral 0\n")
        corral.chmod(0o755)
        before = {name: os.environ.get(name) for name in ("OUT", "CORRAL")}
        self.addCleanup(lambda: [os.environ.pop(n) if v is None else os.environ.update({n: v}) for n, v in before.items()])
        os.environ.update(OUT=str(self.folder), CORRAL=str(corral))
        handler = signal.getsignal(signal.SIGTERM)
        self.addCleanup(signal.signal, signal.SIGTERM, handler)

    def part(self, name, *passed):
        with results.Part(name, "A part", 60) as part:
            for number, one in enumerate(passed):
                part.check(f"check {number}", one, "why")
        return part

    def test_parts_are_kept_beside_each_other(self):
        self.part("one", True)
        self.part("two", True, False)
        everything = results.read_all(self.folder)
        self.assertEqual((everything["one"]["failed"], everything["two"]["failed"]), (0, 1))
        self.assertIn("check 1: why", (self.folder / "measured-two.md").read_text())

    def test_a_part_that_breaks_off_is_a_failure_and_is_written(self):
        with self.assertRaises(RuntimeError), results.Part("one", "A part", 60) as part:
            part.check("first", True)
            raise RuntimeError("broke")
        self.assertEqual(results.read_all(self.folder)["one"]["failed"], 1)

    def test_what_there_is_no_time_for_is_a_failure(self):
        with results.Part("one", "A part", 0) as part:
            self.assertFalse(part.has_time_for(10, "late"))
        self.assertEqual(part.totals(), (0, 1))

    def test_a_part_without_checks_is_no_success(self):
        self.assertNotEqual(self.part("one").exit_code(), 0)

    def test_an_old_entry_without_its_page_does_not_count(self):
        self.part("one", True)
        sys_argv, sys.argv = sys.argv, ["results.py", str(self.folder), "one"]
        self.addCleanup(setattr, sys, "argv", sys_argv)
        self.assertEqual(results.main(), 0)
        (self.folder / "measured-one.md").unlink()
        self.assertEqual(results.main(), 1)


class Turns(unittest.TestCase):
    def test_the_arms_take_turns_in_mirrored_order(self):
        self.assertEqual(resnet.turns("a", "b", 3), ["a", "b", "b", "a", "a", "b"])


if __name__ == "__main__":
    unittest.main()
