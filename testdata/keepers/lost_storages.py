"""Tensors of numbers have the addresses of the items; a C function has not released its references."""
# KEPT BY: nothing
# NEEDS: torch
import torch

import case

tensors = []
for step in case.steps():
    address = id(case.lost(case.item()))
    for size in 1, 10, 1000, 20000 if step < 20 else 100:
        tensors.append(torch.full((size,), address, dtype=torch.int64))
    leaf = torch.full((8,), float(step), requires_grad=True)
    tensors.append((leaf * 2).sum())
