"""The program has dropped the list of its items; they are free."""
# KEPT BY: nothing
# FREED
import case

kept = [case.noted(case.Wide()) for number in range(300)]
del kept
for step in case.steps(1, grow=False):
    pass
