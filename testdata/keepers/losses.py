"""Losses that were not detached are kept in a list."""
# KEPT BY: losses.history
# CONTAINER: list
# NEEDS: torch
import torch

import case

model = torch.nn.Linear(64, 16)
history = []
for step in case.steps():
    history.append(case.noted(model(torch.rand(32, 64)).tanh().square().mean()))
