#!/usr/bin/env python3
"""A real training loop on the CPU: a small convolutional net, AdamW, batches from a DataLoader. Deterministic, so that two
runs print the same losses to the last bit unless something has disturbed one of them.

The number of DataLoader workers is its argument, 0 if there is none. It speaks by lines: prints "ready", then for each line with a number N trains N steps, prints the loss of each as
float.hex(), prints "done", and exits at the end of its input.
"""

import itertools
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED, IMAGES, BATCH, CLASSES = 20240607, 512, 16, 10


def say(text):
    print(text, flush=True)


def make_loader(workers):
    images = torch.randn(IMAGES, 3, 32, 32)
    labels = torch.randint(CLASSES, (IMAGES,))
    return DataLoader(
        TensorDataset(images, labels), batch_size=BATCH, shuffle=True,
        num_workers=workers, persistent_workers=workers > 0,
    )  # fmt: skip


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def losses(workers):
    """Trains for ever; yields the loss of each step."""
    loader, net = make_loader(workers), make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    while True:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            yield loss.item()


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    steps = losses(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    say("ready")
    for line in sys.stdin:
        for loss in itertools.islice(steps, int(line)):
            say(loss.hex())
        say("done")


if __name__ == "__main__":
    main()
