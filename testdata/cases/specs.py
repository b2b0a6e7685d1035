"""Each step leaves small objects of Python behind: a description of each operand, in a tuple that a cache keeps: pytorch#178276."""

import case

OPERANDS = 1_000

cache = {}
steps = 0


class Spec:
    __slots__ = ("mesh", "placement", "shape")

    def __init__(self, number):
        self.mesh, self.placement, self.shape = "cpu", number, (number, number + 1)


def step():
    global steps
    for number in range(OPERANDS):
        cache[steps, number] = (Spec(number), Spec(number + 1))  # NAMED
    steps += 1


if __name__ == "__main__":
    case.run(step, 5)
