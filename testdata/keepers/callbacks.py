"""Bound methods in a list of callbacks keep the items."""
# KEPT BY: callbacks.listeners
# CONTAINER: list
import case


class Listener(case.Item):
    def notify(self):
        return self.payload


listeners = []
for step in case.steps():
    listeners.append(case.noted(Listener()).notify)
