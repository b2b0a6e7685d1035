"""Cycles of 60 kB that the garbage collector frees each 20 seconds, beside a model. No leak."""

import gc

import numpy

import pace


class Node:
    def __init__(self, size):
        self.me = self
        self.content = bytearray(size)


def main():
    model = numpy.ones(160 << 17)
    gc.disable()
    pace.ready()
    for step in pace.steps(20):
        Node(60000 + step % 7)
        model[step] += 1
        if step % 400 == 399:
            gc.collect()


main()
