"""Sums the losses of all steps as tensors, for a mean. A leak: the sum keeps the graph of each step."""

import pace
from model import Trainer


class Meter:
    def __init__(self):
        self.total = 0.0


meter = Meter()


def train(trainer):
    loss = trainer.forward(rows=64).square().mean()  # NAMED
    loss.backward(retain_graph=True)
    meter.total = meter.total + loss


def main():
    trainer = Trainer()
    pace.ready()
    for _ in pace.steps(8):
        train(trainer)


if __name__ == "__main__":
    main()
