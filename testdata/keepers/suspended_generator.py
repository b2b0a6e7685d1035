"""A local variable of a suspended generator keeps the items."""
# KEPT BY: local window of generator windows() (suspended_generator.py)
# ALSO: suspended_generator.source
# CONTAINER: list
import case


def windows():
    window = []
    while True:
        window.append(case.item())
        yield len(window)


source = windows()
for step in case.steps():
    next(source)
