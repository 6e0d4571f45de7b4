# SPDX-License-Identifier: Apache-2.0
"""Trains torchvision's ResNet-50 on made-up images for some seconds and prints its speed.

Prints `window BEGIN END` (time.monotonic(), the same clock in every process) and `iter/s X`.
With --stray-every N a small tensor is made on the default device every N steps, as a loss that
names no device does: on cuda:0, wherever the training runs.
"""

import argparse
import time

import torch
import torchvision

WARM_UP_STEPS = 30


def chosen_device(text):
    """'last' is the last GPU that is visible; counting them makes no context."""
    return torch.device(f"cuda:{torch.cuda.device_count() - 1}" if text == "last" else text)


class Training:
    def __init__(self, device, batch, stray_every):
        self.device = device
        self.stray_every = stray_every
        self.model = torchvision.models.resnet50(weights=None).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (batch,), device=device)

    def step(self, number):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        if self.stray_every and number % self.stray_every == 0:
            weight = torch.ones(len(self.labels), device="cuda")
            loss = loss * weight.to(self.device).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def timed(self, steps):
        torch.cuda.synchronize(self.device)
        began = time.monotonic()
        for number in range(steps):
            self.step(number)
        torch.cuda.synchronize(self.device)
        return began, time.monotonic()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="last", help="cuda:N, or last: the last GPU that is visible")
    parser.add_argument("--seconds", type=float, default=18)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--stray-every", type=int, default=0, metavar="STEPS")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    device = chosen_device(arguments.device)
    training = Training(device, arguments.batch, arguments.stray_every)
    training.timed(WARM_UP_STEPS)
    began, ended = training.timed(WARM_UP_STEPS)
    steps = max(1, round(arguments.seconds * WARM_UP_STEPS / (ended - began)))
    began, ended = training.timed(steps)
    print(f"window {began:.3f} {ended:.3f}")
    print(f"iter/s {steps / (ended - began):.3f}")


main()
