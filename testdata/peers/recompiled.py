#!/usr/bin/env python3
"""A trainer whose batches change their size all the time, so that torch.compile compiles its net again every STEPS steps. What it
compiles is kept for ever, by one line. It keeps the losses of the last batches for a while. See peer.py; it plants nothing.
"""

import collections
import os

import torch
import torch._dynamo
from torch import nn

import peer

WIDTH, CLASSES = 64, 16
SMALLEST = 8  # samples of a batch
STEPS = 4  # with one size
REMEMBERED = 8  # steps
UNLIMITED = 1 << 30  # sizes that are compiled before torch gives up


class Trainer:
    def __init__(self):
        net = nn.Sequential(
            nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES), nn.LogSoftmax(-1),
        )  # fmt: skip
        self.net = torch.compile(net, dynamic=False)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.recent = collections.deque(maxlen=REMEMBERED)
        self.steps, self.planted = 0, 0

    def step(self):
        size = SMALLEST + self.steps // STEPS
        self.steps += 1
        loss = self.forward(torch.randn(size, WIDTH), torch.randint(CLASSES, (size,)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.remember(loss.detach())

    def forward(self, batch, labels):
        scores = self.net(batch)  # LEAK
        return nn.functional.nll_loss(scores, labels)

    def remember(self, loss):
        self.recent.append(loss.expand(WIDTH).clone())  # CACHE


def main():
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.getcwd(), f"kernels{os.getpid()}")  # of no earlier run
    torch._dynamo.config.cache_size_limit = UNLIMITED
    torch._dynamo.config.accumulated_cache_size_limit = UNLIMITED
    torch.manual_seed(20240607)
    torch.set_num_threads(1)
    peer.serve(Trainer(), REMEMBERED)


if __name__ == "__main__":
    main()
