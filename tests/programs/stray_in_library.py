# SPDX-License-Identifier: Apache-2.0
"""The stray of stray_default_device.py through a library: the culprit is the line in evaluate()."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
from fake_torch import cuda


def train(device):
    return [cuda.empty(64 << 20, device) for _ in range(4)]


def evaluate():
    cuda.synchronize()  # the stray line: the default device is 0


def main():
    train(1 if cuda.device_count() > 1 else 0)
    evaluate()
    cuda.report("stray_in_library")


main()
