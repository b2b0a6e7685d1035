"""A loop keeps the loss of each step for its mean, with the graph that computed it: lightning#14270, pytorch's FAQ."""

import case
import torch
from torch import nn

BATCH, WIDTH = 64, 128

net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))
losses = []


def step():
    loss = net(torch.randn(BATCH, WIDTH)).square().mean()  # NAMED
    losses.append(loss)


if __name__ == "__main__":
    torch.set_num_threads(1)
    case.run(step, 5)
