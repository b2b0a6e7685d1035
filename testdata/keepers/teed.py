"""itertools.tee keeps the items for the iterator that is behind."""
# KEPT BY: teed.behind
# ALSO: teed.ahead
import itertools

import case


def read():
    while True:
        yield case.item()


ahead, behind = itertools.tee(read())
for step in case.steps(100):
    next(ahead)
