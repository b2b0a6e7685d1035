"""An attribute of a threading.local keeps the items."""
# KEPT BY: thread_local.state
# ALSO: CPython itself
import threading

import case

state = threading.local()
state.history = []
for step in case.steps():
    state.history.append(case.item())
