# SPDX-License-Identifier: Apache-2.0
# Situation: the data set makes CUDA tensors in the workers of its loader, which are new processes on device 0
# Intended: GPU 1
# Strays to: GPU 0
# Finding: stray.default-device
# With one GPU: ends with "invalid device ordinal"
# Adapted: set_device(1) -> set_device(0)
# Fix: give CPU tensors out of the workers, and move the batch in the training loop
import torch
from torch.utils.data import DataLoader, Dataset
from _contexts import report


class Images(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.ones(8).cuda().cpu()  # CULPRIT


if __name__ == "__main__":
    torch.cuda.set_device(1)
    total = torch.zeros(1, device="cuda")
    for batch in DataLoader(Images(), batch_size=2, num_workers=1, multiprocessing_context="spawn"):
        total += batch.to("cuda").sum()
    report(result=float(total), role="rank 0")
