"""Hooks of a module of PyTorch keep the arguments that they were made with."""
# KEPT BY: forward_hooks.model
# NEEDS: torch
import functools

import torch

import case

model = torch.nn.Linear(8, 8)
for step in case.steps():
    model.register_forward_hook(functools.partial(print, case.item()))
