#!/usr/bin/env python3
"""A training loop that keeps its losses with their graph. Prints "ready", then executes one order a line and prints "done": "train N" does N
steps, "tensors" prints, a line each, the storages of the tensors that gc knows, by dtype, shape of the largest and device: their number, that of
the tensors on them, bytes, and tensors with a grad_fn. It exits at the end of its input."""

import gc
import sys
from collections import Counter

import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.images, self.labels = torch.randn(256, 3, 16, 16), torch.randint(10, (256,))
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Sigmoid(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.losses, self.batch = [], None

    def train(self, steps):
        for step in range(steps):
            at = step * 16 % 256
            self.batch = self.images[at : at + 16]  # a view
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.net(self.batch), self.labels[at : at + 16])
            loss.backward(retain_graph=True)
            self.optimizer.step()
            self.losses.append(loss)


def report():
    largest, tensors, with_grad_fn = {}, Counter(), Counter()
    for tensor in [o for o in gc.get_objects() if isinstance(o, torch.Tensor)]:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        key = storage.data_ptr(), storage.nbytes()
        tensors[key] += 1
        with_grad_fn[key] += tensor.grad_fn is not None
        if key not in largest or largest[key].numel() < tensor.numel():
            largest[key] = tensor
    groups = {}
    for (data, size), tensor in largest.items():
        name = str(tensor.dtype).replace("torch.", ""), str(list(tensor.shape)).replace(" ", ""), str(tensor.device)
        group = groups.setdefault(name, [0, 0, 0, 0])
        for i, n in enumerate((1, tensors[data, size], size, with_grad_fn[data, size])):
            group[i] += n
    for name, group in groups.items():
        print(*name, *group)


torch.set_num_threads(1)
trainer = Trainer()
print("ready", flush=True)
for line in sys.stdin:
    order, *arguments = line.split()
    if order == "train":
        trainer.train(int(arguments[0]))
    else:
        report()
    gc.collect()
    print("done", flush=True)
