# SPDX-License-Identifier: Apache-2.0
# Situation: an event is recorded for a timing, on the current stream of the current device
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.stream-event
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: event.record(torch.cuda.current_stream("cuda:1")), or torch.cuda.set_device(1) first
import torch
from _contexts import report

began = torch.cuda.Event(enable_timing=True)
work = torch.ones(256, device="cuda:1")
began.record()  # CULPRIT
report(result=float(work.sum()))
