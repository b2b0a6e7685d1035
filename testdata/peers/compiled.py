#!/usr/bin/env python3
"""A trainer that torch.compile has compiled with Inductor, for the CPU. It keeps the losses of the last batches for a while, and
a copy of each batch's scores for ever, by one line. See peer.py.
"""

import collections

import torch
from torch import nn

import peer

BATCH, WIDTH, CLASSES = 64, 128, 16
REMEMBERED = 2000  # steps


class Trainer:
    def __init__(self):
        self.net = torch.compile(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, CLASSES), nn.LogSoftmax(-1),
            )
        )  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.recent = collections.deque(maxlen=REMEMBERED)
        self.kept, self.planted = [], 0

    def step(self):
        scores = self.net(torch.randn(BATCH, WIDTH))
        self.optimizer.zero_grad()
        nn.functional.nll_loss(scores, torch.randint(CLASSES, (BATCH,))).backward()
        self.optimizer.step()
        self.remember(scores.detach())
        self.keep(scores.detach())

    def remember(self, scores):
        self.recent.append(scores.exp())  # CACHE

    def keep(self, scores):
        self.kept.append(scores.clone())  # LEAK
        self.planted += scores.nbytes


def main():
    torch.manual_seed(20240607)
    torch.set_num_threads(1)
    peer.serve(Trainer(), REMEMBERED)


if __name__ == "__main__":
    main()
