"""Validations of 120 MiB, 6 s of each 30 s, over a slow leak of 0.4 MiB a second."""

import numpy

import pace

metrics = []


def train():
    metrics.append(numpy.ones(10486))  # NAMED


def main():
    pace.ready()
    batch = None
    for step in pace.steps(5):
        train()
        phase = step % 150
        if phase == 120:
            batch = numpy.ones(120 << 17)
        elif phase == 0:
            batch = None


main()
