# SPDX-License-Identifier: Apache-2.0
"""Every family of allocators, and contexts that no hook sees. `memory_test.py CLASS…` runs those classes."""
import sys

from shim_test import HERE, SOURCE, ShimTest, run_tests


class Memory(ShimTest):
    """Every family of allocators."""

    def setUp(self):
        super().setUp()
        self.make_library_folder(HERE / "libmemory_driver.so")

    def run_family(self, family):
        script = SOURCE / "tests/shim/programs/memory_families.py"
        result = self.run_job(sys.executable, script, family)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        trace = self.one_trace()
        self.assertEqual(trace["counters"]["foreign_frees"], 0)
        self.assertEqual(trace["counters"]["unknown_device"], 0)
        events = [(a["function"], a["bytes"], a["device"]["ordinal"], a["first"], a["large"])
                  for a in trace["allocations"]]
        devices = {d["device"]["ordinal"]: d for d in trace["counters"]["devices"]}
        return trace, events, devices

    def assert_counted(self, device, now, allocations, frees, **others):
        found = {name: device[name] for name in ("now", "allocations", "frees", *others)}
        self.assertEqual(found, {"now": now, "allocations": allocations, "frees": frees, **others})

    def test_plain(self):
        _, events, devices = self.run_family("plain")
        self.assertEqual(events, [("cuMemAlloc_v2", 1000, 0, True, False)])
        self.assert_counted(devices[0], 10240, 2, 1)

    def test_managed_memory_is_counted_apart(self):
        trace, events, devices = self.run_family("managed")
        self.assertEqual(events, [("cuMemAllocManaged", 5000, 0, True, False)])
        self.assertTrue(trace["allocations"][0]["managed"])
        self.assert_counted(devices[0], 0, 0, 0, managed=5000)

    def test_stream_ordered(self):
        _, events, devices = self.run_family("stream")
        self.assertEqual(events, [("cuMemAllocAsync", 1000, 0, True, False),
                                  ("cuMemAllocAsync", 2000, 1, True, False),
                                  ("cuMemAllocAsync_ptsz", 64 << 20, 0, False, True)])
        self.assert_counted(devices[0], 3000, 3, 2)
        self.assert_counted(devices[1], 2000, 1, 0)

    def test_memory_of_a_pool_is_on_the_device_of_the_pool(self):
        _, events, devices = self.run_family("pool")
        self.assertEqual(events, [("cuMemAllocFromPoolAsync", 1000, 1, True, False)])
        self.assertEqual(list(devices), [1])
        self.assert_counted(devices[1], 5000, 2, 0)

    def test_host_memory_is_no_devices(self):
        _, events, devices = self.run_family("virtual")
        self.assertEqual([e[:3] for e in events], [("cuMemCreate", 2 << 20, 1), ("cuMemCreate", 4 << 20, 0)])
        self.assert_counted(devices[0], 0, 1, 1)
        self.assert_counted(devices[1], 2 << 20, 1, 0)

    def test_arrays(self):
        _, events, devices = self.run_family("array")
        self.assertEqual(events, [("cuArrayCreate", 16000, 0, True, False)])
        self.assert_counted(devices[0], 4000 + 1000 + 96 + 48 + 400 + 120, 9, 2, untracked=1)

    def test_what_others_made_is_not_counted_as_new(self):
        trace, events, devices = self.run_family("shared")
        self.assertEqual(events, [("cuIpcOpenMemHandle", 0, 0, True, False),
                                  ("cuIpcOpenMemHandle_v2", 0, 1, True, False)])
        self.assertTrue(all(a["shared"] for a in trace["allocations"]))
        self.assert_counted(devices[0], 0, 0, 0, shared=4)
        self.assert_counted(devices[1], 0, 0, 0, shared=3)

    def test_graph_nodes(self):
        trace, events, devices = self.run_family("graph")
        self.assertEqual(events, [("cuGraphAddMemAllocNode", 5000, 1, True, False),
                                  ("cuGraphAddNode_v2", 64 << 20, 0, True, True)])
        self.assertTrue(all(a["graph"] for a in trace["allocations"]))
        self.assert_counted(devices[0], 0, 0, 0, graph_nodes=1)
        self.assert_counted(devices[1], 0, 0, 0, graph_nodes=2)

    def run_shortage(self, family):
        trace, _, devices = self.run_family(family)
        told = [(s["function"], s["device"]["ordinal"], s["bytes"] >> 40, s["held"], s["over"], s["given_back"],
                 s["failures"], s["result"]) for s in trace["shortages"]]
        return trace, told, {n: (d["out_of_memory"], d["shortages_over"]) for n, d in devices.items()}

    def test_memory_that_was_given_back_is_told(self):
        trace, told, counted = self.run_shortage("given_back")
        self.assertEqual(told, [
            ("cuMemAlloc_v2", 0, 1, 8000, False, 0, 1, 2),
            ("cuMemAlloc_v2", 0, 1, 8000, True, 5000, 1, 0),
            ("cuMemAllocAsync", 1, 2, 0, False, 0, 1, 2),
            ("cuMemAllocAsync", 1, 2, 0, False, 0, 2, 2),
            ("cuMemAllocAsync", 1, 2, 0, True, 0, 2, 0)])
        self.assertEqual(counted, {0: (1, 1), 1: (2, 1)})
        self.assertEqual(trace["shortages"][0]["python"][0][2], "refused")

    def test_another_size_ends_a_shortage(self):
        _, told, counted = self.run_shortage("not_the_same")
        self.assertEqual([s[4:] for s in told], [(False, 0, 1, 2), (False, 0, 1, 2)])
        self.assertEqual(counted, {0: (2, 0)})

    def test_refused_in_every_family(self):
        _, told, counted = self.run_shortage("everywhere")
        self.assertEqual([(s[0], s[1], s[4]) for s in told], [
            ("cuMemAllocPitch_v2", 0, False), ("cuMemAlloc_v2", 0, True), ("cuMemCreate", 1, False),
            ("cuMemCreate", 1, True), ("cuMemAllocFromPoolAsync", 1, False)])
        self.assertEqual(counted, {0: (1, 1), 1: (2, 1)})

    def test_other_threads_end_a_shortage_when_they_are_many(self):
        _, told, counted = self.run_shortage("among_threads")
        self.assertEqual([s[4] for s in told], [False, True, False])
        self.assertEqual(counted, {0: (2, 1)})

    def test_beyond_a_limit_refusals_are_only_counted(self):
        _, told, counted = self.run_shortage("many_refusals")
        self.assertEqual((len(told), counted), (128, {0: (200, 0)}))


class Unseen(ShimTest):
    """Primary contexts that no hook saw made, as the driver tells them when it is asked."""

    ASKED = "cuDevicePrimaryCtxGetState"

    def steps(self, *steps):
        result = self.run_job(sys.executable, SOURCE / "tests/shim/programs/unseen.py", *steps)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return [(c["function"], c["device"]["ordinal"], c["ended"]) for c in self.one_trace()["contexts"]]

    def test_found_after_the_next_event(self):
        self.assertEqual(self.steps("init", "unseen1", "create0", "create0", "quit"),
                         [("cuCtxCreate_v2", 0, False), (self.ASKED, 1, False), ("cuCtxCreate_v2", 0, False)])
        context = self.one_trace()["contexts"][1]
        self.assertEqual((context["primary"], context["found"], context["context"]), (True, True, 0))
        self.assertRegex(context["device"]["uuid"], r"^2b685718-")

    def test_found_among_thousands_of_allocations(self):
        self.assertEqual(self.steps("init", "create0", "one", "unseen1", "many", "quit"),
                         [("cuCtxCreate_v2", 0, False), (self.ASKED, 1, False)])

    def test_found_at_exit(self):
        self.assertEqual(self.steps("init", "create0", "unseen0", "unseen1"),
                         [("cuCtxCreate_v2", 0, False), (self.ASKED, 0, False), (self.ASKED, 1, False)])
        self.assertTrue(self.one_trace()["exited"])

    def test_what_hooks_saw_is_not_found_again(self):
        self.assertEqual(self.steps("init", "retain0", "retain1", "create0", "many"),
                         [("cuDevicePrimaryCtxRetain", 0, False), ("cuDevicePrimaryCtxRetain", 1, False),
                          ("cuCtxCreate_v2", 0, False)])

    def test_a_retain_finds_it_first(self):
        self.assertEqual(self.steps("init", "unseen1", "retain1", "create0"),
                         [("cuDevicePrimaryCtxRetain", 1, False), ("cuCtxCreate_v2", 0, False)])
        self.assertTrue(self.one_trace()["contexts"][0]["found"])

    def test_contexts_that_come_and_go_through_hooks_are_never_found(self):
        self.make_library_folder(HERE / "libmemory_driver.so")
        for threads in (1, 2, 6):
            with self.subTest(threads=threads):
                self.come_and_go(threads)

    def come_and_go(self, threads):
        for path in self.trace.iterdir():
            path.unlink()
        self.client("primary-among-threads", threads, program="shim_moments")
        contexts = self.dump()[0]["contexts"]
        of_one = [c for c in contexts if c["device"]["ordinal"] == 1]
        self.assertEqual({c["function"] for c in of_one},
                         {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"})
        self.assertEqual({c["function"] for c in contexts if c["device"]["ordinal"] == 0},
                         {"cuCtxCreate_v2", "cuCtxDestroy_v2"})
        ended = sum(c["ended"] for c in of_one)
        self.assertEqual(len(of_one), 2 * ended)  # none is left at the end

    def test_it_ends_as_others_do(self):
        self.assertEqual(self.steps("init", "unseen1", "create0", "retain1", "reset1", "retain1"),
                         [("cuCtxCreate_v2", 0, False), (self.ASKED, 1, False),
                          ("cuDevicePrimaryCtxReset_v2", 1, True), ("cuDevicePrimaryCtxRetain", 1, False)])

    def test_nothing_is_asked_before_init(self):
        self.make_library_folder(HERE / "libmemory_driver.so")  # dies of it
        script = ("import ctypes;c=ctypes.CDLL('libcuda.so.1');a=ctypes.c_uint64()\n"
                  "for i in range(5000): c.cuMemAlloc_v2(ctypes.byref(a),ctypes.c_uint64(9))\n")
        result = self.run_job(sys.executable, "-c", script)
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertEqual(self.one_trace()["counters"]["devices"][0]["allocations"], 5000)


if __name__ == "__main__":
    run_tests("__main__")
