"""A loop keeps the loss of each step for its mean, with the graph that computed it: lightning#14270, pytorch's FAQ.

usage: outputs.py [LAYERS]
"""

import sys

import case
import torch
from torch import nn

BATCH, WIDTH = 64, 128

layers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
hidden = [module for _ in range(layers) for module in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
net = nn.Sequential(*hidden, nn.Linear(WIDTH, 1))
losses = []


def step():
    loss = net(torch.randn(BATCH, WIDTH)).square().mean()  # NAMED
    losses.append(loss)


if __name__ == "__main__":
    torch.set_num_threads(1)
    case.run(step, 5)
