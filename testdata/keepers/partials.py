"""Arguments of functools.partial objects in a list keep the items."""
# KEPT BY: partials.pending
# CONTAINER: list
import functools

import case

pending = []
for step in case.steps():
    pending.append(functools.partial(print, case.item(), end=""))
