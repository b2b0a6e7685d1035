"""functools.lru_cache with a limit, which links its entries in a list of C structures, keeps the items."""
# KEPT BY: lru_cache of load()
import functools

import case


@functools.lru_cache(maxsize=100000)
def load(number, scale=1.5):
    return case.item()


for step in case.steps():
    load(step, scale=step / 2)
