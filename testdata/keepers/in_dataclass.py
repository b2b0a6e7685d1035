"""A field of a dataclass keeps the items."""
# KEPT BY: in_dataclass.state
# CONTAINER: list
import dataclasses

import case


@dataclasses.dataclass
class State:
    step: int = 0
    history: list = dataclasses.field(default_factory=list)


state = State()
for state.step in case.steps():
    state.history.append(case.item())
