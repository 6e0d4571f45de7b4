# SPDX-License-Identifier: Apache-2.0
# Situation: what the driver makes of odd values of CUDA_VISIBLE_DEVICES; each value is tried in a child that only
#   starts the driver. The result says whether the rules that Corral relies on hold with the GPUs at hand
# Intended: none
# Strays to: nothing
# Finding: none
# With one GPU: works
# Fix: none needed
import concurrent.futures
import json
import os
import subprocess
import sys

from _contexts import report

LOOK = """
import ctypes, json, uuid
driver = ctypes.CDLL("libcuda.so.1")
code, count, found = driver.cuInit(0), ctypes.c_int(), []
if code == 0:
    driver.cuDeviceGetCount(ctypes.byref(count))
for ordinal in range(count.value):
    device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    driver.cuDeviceGetUuid(raw, device)
    found.append("GPU-" + str(uuid.UUID(bytes=bytes(raw))))
print(json.dumps([code, found]))
"""


def devices_with(value):
    env = {name: text for name, text in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if value is not None:
        env["CUDA_VISIBLE_DEVICES"] = value
    child = subprocess.run([sys.executable, "-c", LOOK], env=env, capture_output=True, text=True, timeout=60)
    return json.loads(child.stdout)


_, every = devices_with(None)
last = every[-1]
expected = {
    "": [],
    "-1": [],
    "none": [],
    "NoDevFiles": [],
    "GPU-": every if len(every) == 1 else [],
    "0": every[:1],
    "00": every[:1],
    "0x1": every[:1],
    "0,-1": every[:1],
    "0,0": [],
    str(len(every)): [],
    f"0,{len(every)}": every[:1],
    ",".join(str(n) for n in range(len(every))): every,
    last: [last],
    last + " ": [last],
    last[:12]: [last],
    "GPU-" + last[4:].upper(): [last],
    last[4:]: [],
    last + ",0": [last],
    "0," + last: every[:1],
}
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    answers = dict(zip(expected, pool.map(devices_with, expected)))
odd = []
for value, (code, seen) in answers.items():
    same = seen == expected[value]
    if not same:
        odd.append(value)
    print(f"{'as known' if same else 'DIFFERS '} {value!r:48} cuInit {code:3} devices {[every.index(u) for u in seen]}")
report(result=["unexpected values", len([value for value in odd if value != "GPU-"])])
