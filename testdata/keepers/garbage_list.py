"""Lists that contain themselves wait for the collector, which does not run."""
# KEPT BY: nothing
# GARBAGE: yes
import gc

import case

gc.disable()
for step in case.steps():
    garbage = [case.item()]
    garbage.append(garbage)
    del garbage
