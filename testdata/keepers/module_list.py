"""A list of the program's module keeps the items."""
# KEPT BY: module_list.kept
# CONTAINER: list
import case

kept = []
for step in case.steps():
    kept.append(case.item())
