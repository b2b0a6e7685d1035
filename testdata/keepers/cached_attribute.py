"""functools.cached_property keeps the items in its object."""
# KEPT BY: cached_attribute.model
# CONTAINER: list
import functools

import case


class Model:
    @functools.cached_property
    def history(self):
        return []


model = Model()
for step in case.steps():
    model.history.append(case.item())
