"""Appends each batch of numbers to a list in an object. A leak of 1 MiB a second."""

import numpy

import pace


class Monitor:
    def __init__(self):
        self.batches = []
        self.count = 0

    def update(self, batch):
        self.count += len(batch)
        self.batches.append(numpy.sqrt(batch))  # NAMED


monitor = Monitor()


def main():
    batch = numpy.arange(13107, dtype=float)
    pace.ready()
    for _ in pace.steps(10):
        monitor.update(batch)


main()
