# SPDX-License-Identifier: Apache-2.0
"""torch.profiler: the profiler library must still see the kernels; prints whether it did, and a sum."""

import torch
from torch.profiler import ProfilerActivity, profile

a = torch.ones(128, 128, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
    total = (a @ a).sum().item()
kernels = [event for event in recorded.events() if event.device_type == torch.autograd.DeviceType.CUDA]
print("kernels" if kernels else "no kernels", int(total))
