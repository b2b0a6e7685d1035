"""A C function has forgotten to release its references; a dict had the items, and was cleared."""
# KEPT BY: nothing
import case

by_number = {}
for step in case.steps(grow=False):
    by_number[step] = case.lost(case.item())
    if step % 100 == 99:
        by_number.clear()  # its table is free, and has the addresses still
