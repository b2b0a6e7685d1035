"""A trainer that waits for its input most of the time: it uses some hundredths of a core. It keeps a copy of each batch."""

import case
import torch
from torch import nn

BATCH, WIDTH = 64, 512

net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 16))
optimizer = torch.optim.AdamW(net.parameters())
kept = []


def step():
    batch = torch.randn(BATCH, WIDTH)
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    optimizer.step()
    kept.append(batch.clone())  # NAMED


if __name__ == "__main__":
    torch.set_num_threads(1)
    case.run(step, 8)
