"""Objects had the items as attributes, and have others now; a C function has not released its references."""
# KEPT BY: nothing
import case


class Holder:
    def __init__(self, thing):
        self.first = self.second = self.third = thing


class Slotted:
    __slots__ = ["first", "second"]


holders = []
for step in case.steps():
    thing = case.lost(case.item())
    wide, dropped, replaced, slotted = Holder(thing), Holder(thing), Holder(thing), Slotted()
    for number in range(40):
        setattr(wide, "more%d" % number, number)  # a table of its own takes the values
    wide.first = wide.second = wide.third = None
    del dropped.first, dropped.second, dropped.third
    replaced.__dict__ = {"other": 1}
    seen = vars(Holder(thing))
    seen.clear()
    slotted.first = slotted.second = thing
    del slotted.first
    slotted.second = None
    holders.append([wide, dropped, replaced, slotted, seen])
    del thing, wide, dropped, replaced, slotted, seen
