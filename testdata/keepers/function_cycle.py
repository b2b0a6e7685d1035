"""A gradient keeps its graph, in which a function of Python saved the parameter: gc does not see it."""
# KEPT BY: a cycle of C++ objects
# NEEDS: torch 2.10
# UNSEEN BY GC
import torch

import case


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


for step in case.steps():
    weight = case.noted(torch.nn.Parameter(torch.randn(16, 16)))
    Cube.apply(weight).mean().backward(create_graph=True)
    del weight
