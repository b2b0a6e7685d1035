"""A distributed trainer for torchrun: gloo, DistributedDataParallel, and a tensor of 200 KB that each rank keeps each step."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept = []


def train_step():
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.zeros(50_000) + loss.detach())  # the leak


while True:
    train_step()
    time.sleep(0.1)
