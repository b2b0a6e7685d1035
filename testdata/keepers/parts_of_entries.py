"""A dict of figures keeps the items, each in one of seven parts of a figure: no one way leads to most of them."""
# KEPT BY: parts_of_entries.figures
# CONTAINER: dict 43
import case


class Part:
    pass


class Figure(Part):
    def __init__(self):
        self.axis, self.labels, self.table = Part(), [], {}

    def add(self, number, thing):
        if number == 0:
            self.title = thing
        elif number == 1:
            self.legend = thing
        elif number == 2:
            self.axis.low = thing
        elif number == 3:
            self.axis.high = thing
        elif number == 4:
            self.labels.append(thing)
        elif number == 5:
            self.table["bottom"] = thing
        else:
            self.pair = (number, thing)


PARTS = 7
figures = {}
for step in case.steps(grow=False):
    figure = figures.setdefault(step // PARTS, Figure())
    figure.add(step % PARTS, case.item())
