"""Tuples and frozensets, one within the other, keep the items."""
# KEPT BY: nested_tuples.snapshots
# CONTAINER: list
import case

snapshots = []
for step in case.steps():
    snapshots.append((step, (frozenset([case.item(), step]), "step")))
