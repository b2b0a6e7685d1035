"""Keeps the outputs of each step by its number, in an attribute. A leak of 1 MiB a second."""

import pace
from model import Trainer


class Recorder:
    def __init__(self):
        self.outputs = {}

    def record(self, step, output):
        self.outputs[step] = output.detach().repeat(1, 64)  # NAMED


recorder = Recorder()


def main():
    trainer = Trainer()
    pace.ready()
    for step in pace.steps(4):
        output, _ = trainer.step(rows=128)
        recorder.record(step, output)


main()
