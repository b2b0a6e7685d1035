"""The default of an argument that is given by keyword only keeps the items."""
# KEPT BY: default argument seen of remember()
# CONTAINER: list
import case


def remember(thing, *, seen=[]):
    seen.append(thing)


for step in case.steps():
    remember(case.item())
