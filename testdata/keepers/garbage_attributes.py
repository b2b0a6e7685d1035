"""Pairs of objects that refer to each other wait for the collector, which does not run."""
# KEPT BY: nothing
import gc

import case


def pair():
    first, second = case.item(), case.Item()
    first.other, second.other = second, first


gc.disable()
for step in case.steps():
    pair()
