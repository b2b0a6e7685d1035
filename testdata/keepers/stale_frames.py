"""Functions that have returned left the items in the memory of their frames; the references are lost."""
# KEPT BY: nothing
import case


def descend(depth, batch):
    copy = batch
    return descend(depth - 1, copy) if depth else None


for step in case.steps():
    descend(step % 100, case.lost(case.item()))
