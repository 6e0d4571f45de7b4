# SPDX-License-Identifier: Apache-2.0
# Situation: seeding, names, capabilities, counters and peer questions about GPU 0 make no context there
# Intended: GPU 1
# Strays to: nothing
# Finding: none
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: none needed
import torch
from _contexts import report

torch.cuda.manual_seed_all(7)
work = torch.ones(64, device="cuda:1")
first = torch.cuda.get_device_properties(0)
asked = [
    torch.cuda.get_device_name(0) == first.name,
    torch.cuda.get_device_capability(0) == (first.major, first.minor),
    torch.cuda.memory_allocated(0) >= 0,
    torch.cuda.current_device(),
]
if torch.cuda.device_count() > 1:
    torch.cuda.can_device_access_peer(0, 1)
report(result=[*asked, float(work.sum())])
