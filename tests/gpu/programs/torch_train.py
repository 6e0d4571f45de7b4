# SPDX-License-Identifier: Apache-2.0
"""Torch: a linear fit by gradient descent on the GPU; prints the slope and the intercept it finds."""

import torch

torch.manual_seed(3)
x = torch.linspace(-1, 1, 64, device="cuda")
y = 2 * x - 1
weights = torch.zeros(2, device="cuda", requires_grad=True)
for _ in range(200):
    loss = ((weights[0] * x + weights[1] - y) ** 2).mean()
    (gradient,) = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        weights -= 0.5 * gradient
torch.cuda.synchronize()
print(f"{weights[0]:.3f} {weights[1]:.3f}")
