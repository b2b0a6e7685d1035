"""A context of contextvars keeps the items."""
# KEPT BY: context_variable.context
import contextvars

import case

history = contextvars.ContextVar("history")
context = contextvars.copy_context()
context.run(history.set, [])
for step in case.steps():
    context[history].append(case.item())
