"""A forked child keeps the items that its parent had made, and more."""
# KEPT BY: forked_child.kept
# CONTAINER: list
import os

import case

kept = [case.item() for number in range(200)]
if os.fork():
    os.wait()
else:
    for step in case.steps():
        kept.append(case.item())
