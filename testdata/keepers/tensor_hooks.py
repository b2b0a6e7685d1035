"""Hooks of a parameter of PyTorch keep the items, by their closures."""
# KEPT BY: tensor_hooks.weight
# CONTAINER: collections.OrderedDict
# NEEDS: torch
import torch

import case


def hook(item):
    return lambda gradient: gradient * len(item.payload)


weight = torch.nn.Parameter(torch.ones(8))
for step in case.steps():
    weight.register_hook(hook(case.item()))
