#!/usr/bin/env python3
"""A real training loop that does in an hour what trainers do in a day, and uses a fifth of a core.

An epoch, some 20 seconds, starts two DataLoader workers that end with it, validates with half of the
data at once, and saves a checkpoint. Every step keeps 4 KiB for ever: a leak of 2.4 MB a
minute. It writes a line per epoch to the log that is its argument, as `allocscope: epoch N`, and
rotates the log every fifth epoch.
"""

import io
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, STEP_SECONDS, BATCH = 200, 0.1, 16
kept = []


def log(path, epoch):
    if epoch % 5 == 4 and os.path.exists(path):
        os.replace(path, path + ".1")
    with open(path, "a", encoding="utf-8") as file:
        print(f"allocscope: epoch {epoch}", file=file)


def train(net, optimizer, loader):
    for images, labels in loader:
        started = time.monotonic()
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        kept.append(torch.zeros(1024))
        time.sleep(max(0.0, STEP_SECONDS - (time.monotonic() - started)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(STEPS * BATCH, 3, 32, 32), torch.randint(10, (STEPS * BATCH,)))
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters())
    print("ready", flush=True)
    epoch = 0
    while True:
        train(net, optimizer, DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=2))
        with torch.no_grad():
            net(torch.randn(STEPS * BATCH // 2, 3, 32, 32))
        torch.save(net.state_dict(), io.BytesIO())
        log(sys.argv[1], epoch)
        epoch += 1


if __name__ == "__main__":
    main()
