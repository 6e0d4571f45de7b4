# SPDX-License-Identifier: Apache-2.0
# Situation: a DataLoader with pin_memory=True pins in a thread of its own, whose device is cuda:0
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.pinned-memory
# With one GPU: ends with "invalid device ordinal"
# Adapted: cuda:1 -> cuda:0
# Fix: torch.cuda.set_device(1) before the loader is iterated
import torch
from torch.utils.data import DataLoader
from _contexts import report


def main():
    loader = DataLoader(torch.arange(48.0), batch_size=12, num_workers=1, pin_memory=True)
    total = 0.0
    for batch in loader:  # CULPRIT
        total += float(batch.to("cuda:1", non_blocking=True).sum())
    report(result=total)


if __name__ == "__main__":
    main()
