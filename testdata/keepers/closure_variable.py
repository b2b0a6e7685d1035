"""A variable of an enclosing function keeps the items."""
# KEPT BY: closure variable seen of make.<locals>.accept()
# CONTAINER: list
import case


def make():
    seen = []

    def accept(thing):
        seen.append(thing)

    return accept


accept = make()
for step in case.steps():
    accept(case.item())
