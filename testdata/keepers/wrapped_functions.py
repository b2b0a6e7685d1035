"""Each function wraps the one before it, by a cell of its closure; a variable keeps the outermost."""
# KEPT BY: wrapped_functions.schedule
import case


def wrap(function):
    item = case.item()
    return lambda step: function(step) + len(item.payload)


schedule = None
for step in case.steps(300):
    schedule = wrap(schedule)
