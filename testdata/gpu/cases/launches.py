"""A trainer that launches many small kernels: its processor is full, and 50,000 blocks a second are
handed out and come back. 10 MiB/min of tensors stay in a list.

Each step keeps LAYERS tensors until its end, each beside a temporary one and some work of the
processor. Every 64 KiB of the leak stay in history.losses.

Every second it prints "second N steps S cpu C kept K": steps of that second, its CPU time in
seconds, and the number of tensors in history.losses.
"""

import os
import time

import torch

KIB = 1 << 10
KEPT = 64 * KIB
KEPT_PER_SECOND = 10 * 16 / 60
LAYERS = 100
WORK = 1500  # additions beside each pair of tensors


def tensor(size):
    """Gives a tensor of so many bytes on the GPU."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


class History:
    def __init__(self):
        self.losses = []

    def remember(self):
        self.losses.append(tensor(KEPT))


history = History()


def work():
    total = 0
    for i in range(WORK):
        total += i
    return total


def forward():
    activations = []
    for layer in range(LAYERS):
        activations.append(tensor((4 if layer % 4 else 64) * KIB))
        tensor(512)
        work()
    return activations


def main():
    torch.cuda.init()
    parameters = [tensor(256 * KIB) for _ in range(200)]
    print("ready", os.getpid(), flush=True)
    begun = time.monotonic()
    second, steps, cpu = 0, 0, time.process_time()
    while parameters:
        forward()
        steps += 1
        now = time.monotonic() - begun
        if len(history.losses) < now * KEPT_PER_SECOND:
            history.remember()
        if now >= second + 1:
            used = time.process_time() - cpu
            print(f"second {time.monotonic():.3f} steps {steps} cpu {used:.4f} "
                  f"kept {len(history.losses)} allocated {torch.cuda.memory_allocated()}", flush=True)
            second, steps, cpu = int(now), 0, time.process_time()


main()
