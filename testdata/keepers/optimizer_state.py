"""The state of an optimizer keeps a tensor or two for each parameter."""
# KEPT BY: optimizer_state.optimizer
# NEEDS: torch
import torch

import case

model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for number in range(100)])
optimizer = torch.optim.Adam(model.parameters())
model(torch.rand(4, 8)).sum().backward()
optimizer.step()
parameters = len(list(model.parameters()))
for step in case.steps(parameters, grow=False):
    case.noted(optimizer.state[list(model.parameters())[step]]["exp_avg"])
