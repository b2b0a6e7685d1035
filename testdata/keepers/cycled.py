"""itertools.cycle keeps the items to give them again."""
# KEPT BY: cycled.batches
# CONTAINER: list
import itertools

import case


def read():
    while True:
        yield case.item()


batches = itertools.cycle(read())
for step in case.steps():
    next(batches)
