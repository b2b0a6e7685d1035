"""Functions that refer to themselves by a variable around them wait for the collector."""
# KEPT BY: nothing
# GARBAGE: yes
import gc

import case


def make():
    batch = case.item()

    def again(times=[batch]):
        return batch, times, again


gc.disable()
for step in case.steps():
    make()
