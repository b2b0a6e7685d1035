"""A dict of ten lists keeps the items."""
# KEPT BY: dict_of_lists.by_digit
# CONTAINER: dict 10
import case

by_digit = {digit: [] for digit in range(10)}
for step in case.steps():
    by_digit[step % 10].append(case.item())
