"""A penalty on the gradient of an input: the input's gradient keeps its graph, and this the input."""
# KEPT BY: a cycle of C++ objects
# NEEDS: torch
# UNSEEN BY GC
import torch

import case

critic = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
for weight in critic.parameters():
    weight.requires_grad_(False)
for step in case.steps():
    value = case.noted(torch.randn(4, 8, requires_grad=True))
    critic(value).square().sum().backward(create_graph=True)
    del value
