"""Two containers of one class keep the items, each of them all."""
# KEPT BY: two_attributes.State.by_step
# KEPT BY: two_attributes.State.log
# EACH
import case


class State:
    by_step, log = {}, []


for step in case.steps():
    item = State.by_step[step] = case.item()
    State.log.append(item)
