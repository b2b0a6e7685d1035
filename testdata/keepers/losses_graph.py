"""The autograd graph of the losses in a list keeps the activations that it has saved."""
# KEPT BY: losses_graph.history
# CONTAINER: list
# NEEDS: torch
# UNSEEN BY GC
import torch

import case


def loss():
    hidden = model(torch.rand(32, 64)).tanh()  # tanh saves its result
    case.addresses.append(hidden.data_ptr())
    return hidden.square().mean()


model = torch.nn.Linear(64, 16)
history = []
for step in case.steps():
    history.append(loss())
