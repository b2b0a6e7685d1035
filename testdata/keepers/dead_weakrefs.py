"""Weak references to items that are free, and a WeakKeyDictionary of them."""
# KEPT BY: nothing
# FREED
import weakref

import case

kept = [case.noted(case.Wide()) for number in range(300)]
references = [weakref.ref(thing) for thing in kept]
values = weakref.WeakKeyDictionary((thing, str(step)) for step, thing in enumerate(kept))
del kept
for step in case.steps(1, grow=False):
    pass
