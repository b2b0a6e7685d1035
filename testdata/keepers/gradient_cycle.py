"""The gradient of a parameter keeps its graph, and this the parameter: a cycle of C++ objects."""
# KEPT BY: a cycle of C++ objects
# NEEDS: torch
# UNSEEN BY GC
import torch

import case

base = torch.randn(16, 16)
for step in case.steps():
    weight = case.noted(torch.nn.Parameter(base.clone()))
    (torch.tanh(weight) - 1).pow(2).mean().backward(create_graph=True)
    del weight
