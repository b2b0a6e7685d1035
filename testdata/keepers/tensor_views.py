"""Views of a tensor in a list keep its whole storage."""
# KEPT BY: tensor_views.views
# CONTAINER: list
# NEEDS: torch
# UNSEEN BY GC
import torch

import case


def view():
    batch = torch.rand(100, 100)
    case.addresses.append(batch.data_ptr())
    return batch[3:5]


views = []
for step in case.steps():
    views.append(view())
