"""One item of fifty is kept; those between them are free."""
# KEPT BY: nothing
# FREED
import case

kept = [case.noted(case.Wide()) for number in range(3000)]
case.addresses[:] = [address for number, address in enumerate(case.addresses) if number % 50]
kept = kept[::50]
for step in case.steps(1, grow=False):
    pass
