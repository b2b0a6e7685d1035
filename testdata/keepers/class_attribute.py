"""An attribute of a class keeps the items."""
# KEPT BY: class_attribute.Registry.items
# CONTAINER: list
import case


class Registry:
    items = []


for step in case.steps():
    Registry.items.append(case.item())
