"""A trainer whose memory grows for 40 seconds, and then stays as it is."""

import numpy

import pace
from model import Trainer

tables = []


def main():
    trainer = Trainer()
    pace.ready()
    for step in pace.steps(4):
        trainer.step()
        if step < 160:
            tables.append(numpy.ones(65536))


main()
