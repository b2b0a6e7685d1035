"""Trains, and keeps a metric of each step with the graph that computed it; --fixed: its value."""

import sys
import time

import torch

FIXED = "--fixed" in sys.argv
BATCH, FEATURES, STEPS_PER_SECOND = 64, 512, 10

torch.set_num_threads(1)
model = torch.nn.Sequential(
    torch.nn.Linear(FEATURES, FEATURES), torch.nn.ReLU(), torch.nn.Linear(FEATURES, FEATURES)
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
history = []


def train_step():
    batch = torch.randn(BATCH, FEATURES)
    output = model(batch)
    loss = torch.nn.functional.mse_loss(output, batch)
    error = (output - batch).abs().mean()
    history.append(error.detach() if FIXED else error)

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


while True:
    train_step()
    time.sleep(1 / STEPS_PER_SECOND)
