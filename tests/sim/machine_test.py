# SPDX-License-Identifier: Apache-2.0
"""The simulated machine from outside: machine_test.py BUILD-FOLDER [TEST…]."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv.pop(1))
SIM = os.path.join(BUILD, "sim", "corral-sim")
PROGRAMS = os.path.join(BUILD, "tests", "programs")
FIRST, SECOND = "0000:00:06.0", "0000:00:07.0"
UUID = {FIRST: "GPU-2a4d0660-db8e-67f0-3142-37ccd2d5b25c", SECOND: "GPU-2b685718-e7c6-a661-f4b0-04f71feb86c0"}
NOBODY = 65534


def must_work(feature):
    return feature in os.environ.get("CORRAL_MUST_WORK", "").split(",")


class Machine(unittest.TestCase):
    """As whoever runs the tests; AsUser repeats all of it as an ordinary user."""
    before = []

    def setUp(self):
        self.home = tempfile.mkdtemp(dir="/var/tmp")  # not /tmp: no machine may be there
        os.chmod(self.home, 0o755)
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)

    def environment(self, extra):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CORRAL_SIM", "XDG_"))}
        return {**kept, "HOME": self.home, "PYTHONPATH": HERE, "CORRAL_SIM_DECAY_S": "1000", **extra}

    def command(self, words, profile="h200x2", options=()):
        return [*self.before, SIM, *options, profile, "--", *words]

    def run_on(self, *words, profile="h200x2", options=(), **extra):
        return subprocess.run(self.command(words, profile, options), env=self.environment(extra), timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def python(self, code, profile="h200x2", options=(), **extra):
        """The JSON that `code` prints last, in a machine of its own."""
        done = self.run_on("python3", "-B", "-c", "from client import *\nimport json\n" + code, profile=profile,
                           options=options, **extra)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    # Who sees which GPU.

    def test_all_gpus_are_visible_in_bus_order(self):
        self.assertEqual(self.python("print(json.dumps(devices()))"), [0, [FIRST, SECOND]])

    def test_the_variable_is_read_once(self):
        code = "devices(); os.environ['CUDA_VISIBLE_DEVICES'] = '1'; print(json.dumps(devices()))"
        self.assertEqual(self.python(code), [0, [FIRST, SECOND]])

    def test_the_variable_chooses_and_orders(self):
        for value, expected in (("1", [0, [SECOND]]), ("1,0", [0, [SECOND, FIRST]]), ("", [100, []]),
                                (UUID[SECOND], [0, [SECOND]]), ("0,0", [101, []])):
            with self.subTest(value):
                self.assertEqual(self.python("print(json.dumps(devices()))", CUDA_VISIBLE_DEVICES=value), expected)

    def test_a_missing_node_renumbers_the_others(self):
        hide = "os.unlink(os.environ['CORRAL_SIM'] + '/dev/nvidia0'); print(json.dumps(devices()))"
        self.assertEqual(self.python(hide), [0, [SECOND]])
        self.assertEqual(self.python(hide, CUDA_VISIBLE_DEVICES="1"), [100, []])
        self.assertEqual(self.python(hide, CUDA_VISIBLE_DEVICES=UUID[SECOND]), [0, [SECOND]])

    def test_another_device_in_the_nodes_place_is_no_gpu(self):
        code = ("node = os.environ['CORRAL_SIM'] + '/dev/nvidia0'; os.unlink(node); os.symlink('/dev/null', node)\n"
                "print(json.dumps([devices(), [gpu['error'] for gpu in gpus()]]))")
        self.assertEqual(self.python(code), [[0, [SECOND]], [0]])

    def test_a_closed_gpu_is_not_there_for_nvml_and_the_others_are_renumbered(self):
        code = f"""
os.unlink(os.environ["CORRAL_SIM"] + "/dev/nvidia0")
found = gpus()
def by(function, text):
    device, index = ctypes.c_void_p(), ctypes.c_uint()
    code = getattr(ml, function)(text.encode(), ctypes.byref(device))
    return [code, number("nvmlDeviceGetIndex", device) if code == 0 else None]
print(json.dumps([[g["minor"] for g in found], handle(1)[0],
                  [by("nvmlDeviceGetHandleByPciBusId_v2", pci) for pci in ("{FIRST}", "{SECOND}")],
                  [by("nvmlDeviceGetHandleByUUID", uuid) for uuid in ("{UUID[FIRST]}", "{UUID[SECOND]}")]]))
"""
        both = [[6, None], [0, 0]]
        self.assertEqual(self.python(code), [[1], 2, both, both])

    def test_without_the_control_node_there_is_no_driver(self):
        code = ("os.unlink(os.environ['CORRAL_SIM'] + '/dev/nvidiactl')\n"
                "print(json.dumps([cu.cuInit(0), ml.nvmlInit_v2()]))")
        self.assertEqual(self.python(code), [100, 4])

    def test_nvml_numbers_and_minors_are_two_things(self):
        minors = self.python("print(json.dumps([gpu['minor'] for gpu in gpus()]))", profile="h100x8")
        self.assertEqual(minors, [2, 3, 0, 1, 6, 7, 4, 5])

    # What a context costs and who is seen with it.

    def test_a_context_shows_in_nvml_of_another_process(self):
        code = """
child = start("use(1); allocate(100); print(flush=True); time.sleep(1000)")
print(json.dumps([child, gpus()]))
os.kill(child, 9); os.waitpid(child, 0)
"""
        child, (idle, busy) = self.python(code)
        self.assertEqual(idle, {"error": 0, "minor": 0, "used_mib": 616, "power_mw": 78000, "mhz": 345, "processes": []})
        self.assertEqual(busy["processes"], [{"pid": child, "mib": 618, "gi": 2**32 - 1, "ci": 2**32 - 1}])
        self.assertEqual(busy["used_mib"], 616 + 518 + 100 + 7)
        self.assertEqual((busy["power_mw"], busy["mhz"]), (118000, 1980))

    def test_opening_nodes_is_not_a_context(self):
        self.assertEqual(self.python("devices(); print(json.dumps([g['processes'] for g in gpus()]))"), [[], []])

    def test_memory_comes_and_goes_in_steps(self):
        code = """
use(0)
readings = []
for _ in range(2):
    code, address = allocate(3)
    readings.append(gpus()[0]["processes"][0]["mib"])
    check(cu.cuMemFree_v2(ctypes.c_ulonglong(address)))
    readings.append(gpus()[0]["processes"][0]["mib"])
print(json.dumps(readings))
"""
        self.assertEqual(self.python(code), [522, 518, 522, 518])

    def test_a_released_context_takes_its_memory_along(self):
        code = "use(0); allocate(50); check(cu.cuDevicePrimaryCtxRelease_v2(0)); print(json.dumps(gpus()[0]))"
        gpu = self.python(code)
        self.assertEqual((gpu["processes"], gpu["used_mib"]), ([], 616))

    def test_the_old_names_make_and_end_contexts_too(self):
        code = """
counts, context = [], ctypes.c_void_p()
def count(): counts.append([len(gpu["processes"]) for gpu in gpus()])
check(cu.cuInit(0))
check(cu.cuCtxCreate(ctypes.byref(context), 0, 1)); count()
check(cu.cuCtxDestroy(context)); count()
use(0); count()
check(cu.cuDevicePrimaryCtxReset(0)); count()
print(json.dumps(counts))
"""
        self.assertEqual(self.python(code), [[0, 1], [0, 0], [1, 0], [0, 0]])

    def test_too_much_memory_is_refused_also_against_others(self):
        code = """
child = start("use(0); allocate(100000); print(flush=True); time.sleep(1000)")
use(0)
alone = allocate(200000)[0]
beside = allocate(43000)[0]
os.kill(child, 9); os.waitpid(child, 0)
print(json.dumps([alone, beside, allocate(43000)[0]]))
"""
        self.assertEqual(self.python(code), [2, 2, 0])

    def test_a_quiet_context_leaves_the_clocks_alone(self):
        gpu = self.python("use(0); print(json.dumps(gpus()[0]))", CUDA_DISABLE_PERF_BOOST="1")
        self.assertEqual((gpu["power_mw"], gpu["mhz"], len(gpu["processes"])), (78000, 345, 1))

    def test_power_decays_after_the_last_context(self):
        code = "use(0); check(cu.cuDevicePrimaryCtxRelease_v2(0)); print(json.dumps(gpus()[0]))"
        slow = self.python(code, CORRAL_SIM_DECAY_S="1000000")
        self.assertGreater(slow["power_mw"], 117000)
        self.assertEqual(slow["mhz"], 1980)
        at_once = self.python(code, CORRAL_SIM_DECAY_S="0")
        self.assertEqual((at_once["power_mw"], at_once["mhz"]), (78000, 345))

    # Ends.

    def test_a_killed_process_leaves_nothing(self):
        code = """
child = start("use(0); use(1); print(flush=True); time.sleep(1000)")
before = [len(gpu["processes"]) for gpu in gpus()]
os.kill(child, 9); os.waitpid(child, 0)
print(json.dumps([before, gpus()]))
"""
        before, after = self.python(code)
        self.assertEqual(before, [1, 1])
        self.assertEqual([(gpu["processes"], gpu["used_mib"]) for gpu in after], [([], 616), ([], 616)])
        self.assertGreater(after[0]["power_mw"], 100000, "the GPU is still warm")

    def test_exec_ends_contexts(self):
        code = """
child = start("use(0); os.set_inheritable(1, True); os.execlp('sh', 'sh', '-c', 'echo; exec sleep 1000')")
print(json.dumps(len(gpus()[0]["processes"])))
os.kill(child, 9); os.waitpid(child, 0)
"""
        self.assertEqual(self.python(code), 0)

    def test_a_forked_child_has_no_driver(self):
        code = """
use(0)
read, write = os.pipe()
if os.fork() == 0:
    count = ctypes.c_int()
    os.write(write, bytes([cu.cuInit(0), cu.cuDeviceGetCount(ctypes.byref(count))]))
    os._exit(0)
os.wait()
print(json.dumps([list(os.read(read, 2)), len(gpus()[0]["processes"])]))
"""
        self.assertEqual(self.python(code), [[3, 3], 1])

    def test_many_killed_processes_do_not_use_up_the_machine(self):
        code = """
use(1)
for _ in range(40):
    children = [os.fork() for _ in range(1)]
    if children == [0]:
        os.execlp("python3", "python3", "-SBc", "import os, sys; sys.path.insert(0, os.environ['PYTHONPATH'])\\n"
                  "from client import *; use(0); os.kill(os.getpid(), 9)")
    os.wait()
print(json.dumps([len(gpu["processes"]) for gpu in gpus()]))
"""
        self.assertEqual(self.python(code), [0, 1])

    # The driver's own rules.

    def test_error_codes_are_the_drivers(self):
        code = """
n, c, p = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_ulonglong()
size = ctypes.c_size_t
got = {"before init": cu.cuDeviceGetCount(ctypes.byref(n)), "flags": cu.cuInit(1), "init": cu.cuInit(0)}
got["ordinal"] = cu.cuDeviceGet(ctypes.byref(n), 2)
got["no context"] = cu.cuMemAlloc_v2(ctypes.byref(p), size(4))
got["nothing to pop"] = cu.cuCtxPopCurrent_v2(ctypes.byref(c))
got["not retained"] = cu.cuDevicePrimaryCtxRelease_v2(0)
use(0)
got["size 0"] = cu.cuMemAlloc_v2(ctypes.byref(p), size(0))
got["free 0"] = cu.cuMemFree_v2(ctypes.c_ulonglong(0))
got["free unknown"] = cu.cuMemFree_v2(ctypes.c_ulonglong(12345))
check(cu.cuMemAlloc_v2(ctypes.byref(p), size(4)))
got["free"] = cu.cuMemFree_v2(p)
got["free twice"] = cu.cuMemFree_v2(p)
got["stranger"] = cu.cuCtxSetCurrent(ctypes.c_void_p(4096))
got["table"] = cu.cuGetExportTable(ctypes.byref(c), None)
print(json.dumps(got))
"""
        self.assertEqual(self.python(code), {
            "before init": 3, "flags": 1, "init": 0, "ordinal": 101, "no context": 201, "nothing to pop": 201,
            "not retained": 201, "size 0": 1, "free 0": 0, "free unknown": 1, "free": 0, "free twice": 1,
            "stranger": 201, "table": 500})

    def test_functions_are_found_by_base_name_and_version(self):
        code = """
def find(name, version, flags=0, four=False):
    f, status = ctypes.c_void_p(), ctypes.c_int(-1)
    args = (name.encode(), ctypes.byref(f), version, ctypes.c_ulonglong(flags))
    code = cu.cuGetProcAddress(*args) if four else cu.cuGetProcAddress_v2(*args, ctypes.byref(status))
    for exported in ("cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4", "cuMemAllocAsync", "cuMemAllocAsync_ptsz",
                     "cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAlloc_v2"):
        if f.value == ctypes.cast(getattr(cu, exported), ctypes.c_void_p).value:
            return [code, status.value, exported]
    return [code, status.value, f.value]
print(json.dumps([find("cuCtxCreate", 3020), find("cuCtxCreate", 12000), find("cuCtxCreate", 13000),
                  find("cuCtxCreate", 2000), find("cuMemAllocAsync", 3020), find("cuMemAlloc_v2", 13000), find("", 13000),
                  find("cuMemAllocAsync", 13000, 1), find("cuMemAllocAsync", 13000, 2),
                  find("cuGetProcAddress", 11030), find("cuGetProcAddress", 12000),
                  find("cuMemAlloc", 13000, four=True), find("cuNothing", 13000, four=True)]))
"""
        self.assertEqual(self.python(code), [
            [0, 0, "cuCtxCreate_v2"], [0, 0, "cuCtxCreate_v3"], [0, 0, "cuCtxCreate_v4"],
            [0, 0, "cuCtxCreate"], [0, 2, None], [0, 1, None], [0, 1, None],
            [0, 0, "cuMemAllocAsync"], [0, 0, "cuMemAllocAsync_ptsz"],
            [0, 0, "cuGetProcAddress"], [0, 0, "cuGetProcAddress_v2"],
            [0, -1, "cuMemAlloc_v2"], [500, -1, None]])

    # MIG.

    MIG = ("MIG-9a6d47e2-10c3-5fb8-b705-e3d1562c8a21", "0000:07:00.0")

    def test_a_mig_instance_is_the_only_device(self):
        code = "print(json.dumps(devices()))"
        self.assertEqual(self.python(code, profile="a100mig", CUDA_VISIBLE_DEVICES=self.MIG[0]), [0, [self.MIG[1]]])
        self.assertEqual(self.python(code, profile="a100mig"), [0, ["0000:0f:00.0"]])

    def test_a_process_on_an_instance_is_seen_on_gpu_and_instance(self):
        code = """
use(0)
both = gpus()
instance = ctypes.c_void_p()
counts = []
for i in range(3):
    check(ml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0)[1], i, ctypes.byref(instance)))
    counts.append(len(processes(instance)))
print(json.dumps([both[0]["processes"][0]["gi"], both[0]["processes"][0]["ci"], len(both[1]["processes"]), counts]))
"""
        self.assertEqual(self.python(code, profile="a100mig", CUDA_VISIBLE_DEVICES=self.MIG[0]), [3, 0, 0, [0, 1, 0]])

    def test_an_instance_needs_its_capability_nodes(self):
        code = "os.unlink(os.environ['CORRAL_SIM'] + '/dev/nvidia-caps/nvidia-cap31'); print(json.dumps(devices()))"
        self.assertEqual(self.python(code, profile="a100mig", CUDA_VISIBLE_DEVICES=self.MIG[0]), [100, []])

    # Faults.

    def test_nvml_faults_can_be_asked_for(self):
        code = "print(json.dumps([gpu['error'] for gpu in gpus()]))"
        lost = self.python(code, CORRAL_SIM_NVML_FAULT="nvmlDeviceGetMemoryInfo#1=15")
        self.assertEqual(lost, [0, 15])
        refused = self.python(code, CORRAL_SIM_NVML_FAULT="nvmlDeviceGetHandleByIndex_v2#0=4")
        self.assertEqual(refused, [4, 0])
        later = self.python("print(json.dumps([gpus() and handle(0)[0], handle(0)[0]]))",
                            CORRAL_SIM_NVML_FAULT="nvmlDeviceGetHandleByIndex_v2#0=15@2")
        self.assertEqual(later, [0, 15])
        later = self.python("check(ml.nvmlInit_v2()); print(json.dumps([handle(0)[0], handle(1)[0], handle(0)[0]]))",
                            CORRAL_SIM_NVML_FAULT="nvmlDeviceGetHandleByIndex_v2=15@2")
        self.assertEqual(later, [0, 0, 15])
        self.assertEqual(self.python("print(ml.nvmlInit_v2())", CORRAL_SIM_NVML_FAULT="nvmlInit_v2=9"), 9)

    def test_driver_faults_can_be_asked_for(self):
        code = "c = ctypes.c_void_p(); cu.cuInit(0); print([cu.cuDevicePrimaryCtxRetain(ctypes.byref(c), i) for i in (0, 1)])"
        self.assertEqual(self.python(code, CORRAL_SIM_CUDA_FAULT="cuDevicePrimaryCtxRetain#0=2"), [2, 0])

    def test_an_old_nvml_lacks_the_newer_functions(self):
        code = ("print(json.dumps([hasattr(ml, n) for n in ('nvmlDeviceGetMemoryInfo', 'nvmlDeviceGetMemoryInfo_v2',"
                " 'nvmlDeviceGetComputeRunningProcesses', 'nvmlDeviceGetComputeRunningProcesses_v3')]))")
        self.assertEqual(self.python(code), [True, True, True, True])
        self.assertEqual(self.python(code, options=["--old-nvml"]), [True, False, True, False])

    # corral-sim.

    def test_prints_nothing_and_passes_the_exit_code_on(self):
        done = self.run_on("sh", "-c", "exit 7")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "", ""))

    def test_says_what_it_could_not_do(self):
        for words, code in ((["/nonexistent"], 127), (["/etc/passwd"], 126)):
            self.assertEqual(self.run_on(*words).returncode, code)
        self.assertEqual(self.run_on("true", profile="nope").returncode, 125)
        below_tmp = self.run_on("true", options=["--dir", "/tmp/corral-sim-test"])
        self.assertEqual(below_tmp.returncode, 125)
        self.assertIn("/tmp", below_tmp.stderr)
        self.assertFalse(os.path.exists("/tmp/corral-sim-test"))

    def test_many_starts_at_once_each_get_a_machine(self):
        code = "from client import *; use(0); print(os.environ['CORRAL_SIM'], [len(g['processes']) for g in gpus()])"
        running = [subprocess.Popen(self.command(["python3", "-B", "-c", code]), env=self.environment({}),
                                    stdout=subprocess.PIPE, text=True) for _ in range(8)]
        lines = [process.communicate(timeout=60)[0].split() for process in running]
        self.assertEqual([process.returncode for process in running], [0] * 8)
        self.assertEqual(len({line[0] for line in lines}), 8)
        self.assertEqual({tuple(line[1:]) for line in lines}, {("[1,", "0]")})

    def test_the_next_start_removes_machines_of_the_dead_only(self):
        dead = self.run_on("sh", "-c", "echo $CORRAL_SIM").stdout.strip()
        kept = self.run_on("sh", "-c", "echo $CORRAL_SIM", options=["--keep"]).stdout.strip()
        self.addCleanup(shutil.rmtree, kept, ignore_errors=True)
        with subprocess.Popen(self.command(["sh", "-c", "echo $CORRAL_SIM; read line"]), env=self.environment({}),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            living = process.stdout.readline().strip()
            self.run_on("true")
            self.assertEqual([os.path.isdir(folder) for folder in (dead, kept, living)], [False, True, True])
            process.stdin.close()

    def test_a_machine_can_be_put_anywhere_and_again(self):
        os.chmod(self.home, 0o777)
        place = os.path.join(self.home, "machine")
        for _ in range(2):
            done = self.run_on("sh", "-c", "echo $CORRAL_SIM", options=["--dir", place])
            self.assertEqual(done.stdout.strip(), place, done.stderr)
        occupied = os.path.join(self.home, "occupied")
        os.makedirs(occupied + "/something")
        self.assertEqual(self.run_on("true", options=["--dir", occupied]).returncode, 125)
        self.assertTrue(os.path.isdir(occupied + "/something"))

    def test_the_folder_has_the_forms_of_a_host(self):
        script = "cd $CORRAL_SIM && cat proc/driver/nvidia/gpus/0000:1b:00.0/information " \
                 "sys/bus/pci/devices/0000:1b:00.0/numa_node && ls sys/bus/pci/devices/0000:1b:00.0/drm dev/dri"
        lines = self.run_on("sh", "-c", script, profile="h100x8").stdout.splitlines()
        self.assertIn("Model: \t\t NVIDIA H100 80GB HBM3", lines)
        self.assertIn("Device Minor: \t 2", lines)
        self.assertEqual(lines[11:16], ["0", "dev/dri:", "card1", "card2", "card3"])
        self.assertEqual(lines[-2:], ["card3", "renderD130"])

    # The client programs.

    def test_programs_make_the_contexts_they_claim(self):
        python = os.path.join(os.path.dirname(HERE), "programs")
        for words, last in ((["cuda_hold", "--mib", "5", "0", "1"], "contexts: 0 1"),
                            (["cuda_restore_device"], "contexts: 0 1"),
                            (["cuda_threads", "32"], "contexts: 0 1"),
                            (["cuda_fork", "before"], "contexts: 1"),
                            (["cuda_fork", "after"], "contexts: 1"),
                            (["cuda_fork", "exec"], "contexts: 1"),
                            (["cuda_linked", "0", "1"], "made and ended: 2"),
                            (["cuda_getproc", "1"], "contexts: 1"),
                            (["cuda_getproc", "--four", "1"], "contexts: 1"),
                            (["cuda_allocs", "1000", "1"], "contexts: 1"),
                            (["python3", python + "/stray_default_device.py"], "\"contexts\": [0, 1]}"),
                            (["python3", python + "/stray_in_library.py"], "\"contexts\": [0, 1]}"),
                            (["python3", python + "/stray_late_variable.py"], "\"contexts\": [0]}"),
                            (["python3", python + "/good_one_gpu.py"], "\"contexts\": [1]}")):
            with self.subTest(words[-1]):
                program = words[0] if words[0] == "python3" else os.path.join(PROGRAMS, words[0])
                done = self.run_on(program, *words[1:])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.splitlines()[-1].endswith(last), done.stdout)

    def test_hold_ends_in_order(self):
        hold = os.path.join(PROGRAMS, "cuda_hold")
        for end in (lambda p: p.stdin.write("\n"), lambda p: p.stdin.close(), lambda p: p.send_signal(signal.SIGTERM)):
            with subprocess.Popen(self.command([hold, "--stdin", "1"]), env=self.environment({}),
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
                self.assertEqual(process.stdout.readline(), "contexts: 1\n")
                end(process)
                self.assertEqual(process.wait(timeout=60), 0)


class AsUser(Machine):
    before = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

    def setUp(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            if must_work("root"):
                self.fail("needs root and setpriv")
            self.skipTest("needs root and setpriv")
        super().setUp()
        os.chown(self.home, NOBODY, NOBODY)


if __name__ == "__main__":
    unittest.main()
