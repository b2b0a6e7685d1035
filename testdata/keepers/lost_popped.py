"""Deques had the items, and have dropped them; a C function has not released its references."""
# KEPT BY: nothing
import collections

import case

left, right, bursts = [], [], []
for step in case.steps():
    thing = case.lost(case.item())
    left.append(collections.deque([thing, 1, 2, 3]))
    left[-1].popleft()  # its address stays in the block
    right.append(collections.deque([1, 2, 3, thing]))
    right[-1].pop()
    bursts.append(collections.deque([1] + [thing] * 100))
    for number in range(100):
        bursts[-1].pop()  # a whole block is kept for the next items
    del thing
