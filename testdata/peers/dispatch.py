#!/usr/bin/env python3
"""A trainer whose time goes into dispatching operators: a small residual net and AdamW, one parameter after the other. It looks
at its features at each step: keeps the last ones for a while, and a copy of each for ever, by one line. Both have one size. See peer.py.
"""

import collections

import torch
from torch import nn

import peer

BATCH, WIDTH, LAYERS, CLASSES = 12, 64, 4, 10
REMEMBERED = 2000  # steps


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, features):
        for layer in self.layers:
            features = features + layer(features)
        return features, self.head(features)


class Trainer:
    def __init__(self):
        self.net = Net()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, foreach=False)
        self.recent = collections.deque(maxlen=REMEMBERED)
        self.kept, self.planted = [], 0

    def step(self):
        features, scores = self.net(torch.randn(BATCH, WIDTH))
        loss = nn.functional.cross_entropy(scores, torch.randint(CLASSES, (BATCH,)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.remember(features.detach())
        self.keep(features.detach())

    def remember(self, features):
        self.recent.append(features * 0.5)  # CACHE

    def keep(self, features):
        self.kept.append(features.clone())  # LEAK
        self.planted += features.nbytes


def main():
    torch.manual_seed(20240607)
    torch.set_num_threads(1)
    peer.serve(Trainer(), REMEMBERED)


if __name__ == "__main__":
    main()
