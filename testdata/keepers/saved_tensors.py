"""The autograd graph of the losses in a list owns the objects of tensors that it has saved."""
# KEPT BY: saved_tensors.history
# CONTAINER: list
# NEEDS: torch
# UNSEEN BY GC
import torch

import case


def loss():
    hidden = case.noted(model(torch.rand(32, 64)).tanh())  # tanh saves its result
    return hidden.square().mean()


model = torch.nn.Linear(64, 16)
history = []
for step in case.steps():
    history.append(loss())
