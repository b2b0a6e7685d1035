"""The default of an argument keeps the items."""
# KEPT BY: default argument seen of remember()
# CONTAINER: list
import case


def remember(thing, twice=False, seen=[]):
    seen.append(thing)


for step in case.steps():
    remember(case.item())
