"""A set keeps the items."""
# KEPT BY: in_set.seen
# CONTAINER: set
import case

seen = set()
for step in case.steps():
    seen.add(case.item())
