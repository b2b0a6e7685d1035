"""functools.lru_cache without a limit keeps the items."""
# KEPT BY: lru_cache of load()
# CONTAINER: dict
import functools

import case


@functools.lru_cache(maxsize=None)
def load(number):
    return case.item()


for step in case.steps():
    load(step)
