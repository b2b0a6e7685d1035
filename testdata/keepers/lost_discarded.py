"""Sets and dicts had the items, and have dropped them; a C function has not released its references."""
# KEPT BY: nothing
import case

sets, dicts = [], []
by_number = dict.fromkeys(range(100))
for step in case.steps():
    thing = case.lost(case.item())
    grown = {thing}
    grown.update(range(100))  # the table within the object is used no more
    grown.discard(thing)
    sets.append(grown)
    small = {thing, 1, 2}
    small.discard(thing)
    sets.append(small)
    one = {"first": 1, thing: 2, "second": thing}
    del one[thing], one["second"]
    dicts.append(one)
    by_number[thing] = thing
    del by_number[thing]
    del thing, grown, small, one
