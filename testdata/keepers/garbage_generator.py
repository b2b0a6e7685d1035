"""Suspended generators that refer to themselves wait for the collector."""
# KEPT BY: nothing
# GARBAGE: yes
import gc

import case


def generate(own):
    batch = case.item()
    yield batch
    yield own


def make():
    own = []
    own.append(generate(own))
    next(own[0])


gc.disable()
for step in case.steps():
    make()
