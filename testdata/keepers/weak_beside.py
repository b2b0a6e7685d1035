"""A dict keeps the items; a WeakValueDictionary and a WeakSet know them too."""
# KEPT BY: weak_beside.kept
# CONTAINER: dict
import weakref

import case


class Record(case.Item):
    pass


by_number = weakref.WeakValueDictionary()
everyone = weakref.WeakSet()
kept = {}
for step in case.steps():
    kept[step] = by_number[step] = case.noted(Record())
    everyone.add(kept[step])
