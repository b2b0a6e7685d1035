"""A frozendict of ten lists keeps the items. It is no dict: Python has it since 3.15, and before that a class of this name."""
# KEPT BY: in_frozendict.by_digit
# CONTAINER: frozendict 10
import builtins

import case

frozendict = getattr(builtins, "frozendict", None) or type("frozendict", (dict,), {"__module__": "builtins"})
by_digit = frozendict({digit: [] for digit in range(10)})
for step in case.steps():
    by_digit[step % 10].append(case.item())
