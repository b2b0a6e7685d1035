"""A collections.deque keeps the items."""
# KEPT BY: in_deque.recent
# CONTAINER: collections.deque
import collections

import case

recent = collections.deque()
for step in case.steps():
    recent.appendleft(case.item())
