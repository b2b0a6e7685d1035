"""Keeps the output of each step in a list. A leak: history keeps 1 MiB a second."""

import pace
from model import Trainer

history = []


def train(trainer):
    output, _ = trainer.step(rows=128)
    history.append(output.detach().repeat(4, 16))  # NAMED


def main():
    trainer = Trainer()
    pace.ready()
    for _ in pace.steps(4):
        train(trainer)


main()
