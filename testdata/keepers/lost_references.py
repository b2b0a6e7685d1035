"""A C function has forgotten to release its references; a list had the items, and has shrunk."""
# KEPT BY: nothing
import case

kept = ["first"]
for step in case.steps(grow=False):
    kept.append(case.lost(case.item()))
    if step % 3 == 2:
        kept.pop()
        kept.pop()  # the addresses stay behind its end
        del kept[1]
