"""Exceptions that a local variable of their own frame refers to wait for the collector."""
# KEPT BY: nothing
# GARBAGE: yes
import gc

import case


def fail():
    batch = case.item()
    try:
        raise ValueError(batch)
    except ValueError as error:
        again = error


gc.disable()
for step in case.steps():
    fail()
