"""An attribute of an object in a list keeps the items."""
# KEPT BY: attribute_of_listed.trainers
# CONTAINER: list 1
import case


class Trainer:
    def __init__(self):
        self.name, self.outputs = "first", []


trainers = [Trainer()]
for step in case.steps():
    trainers[0].outputs.append(case.item())
