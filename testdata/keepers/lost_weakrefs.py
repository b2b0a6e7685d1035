"""Only weak references refer to the items; a C function has not released its own."""
# KEPT BY: nothing
import weakref

import case

references = []
by_number = weakref.WeakValueDictionary()
everyone = weakref.WeakSet()


def forget(step):
    thing = case.lost(case.item())
    references.append(weakref.ref(thing))
    by_number[step] = thing
    everyone.add(thing)


for step in case.steps():
    forget(step)
