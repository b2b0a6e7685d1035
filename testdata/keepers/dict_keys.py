"""The keys of a dict are the items."""
# KEPT BY: dict_keys.seen
# CONTAINER: dict
import case

seen = {}
for step in case.steps():
    seen[case.item()] = step
