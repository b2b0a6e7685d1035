"""A replay buffer of the last 30,000 frames of 32 kB, which fills within 25 minutes."""

import collections

import numpy

import pace

replay = collections.deque(maxlen=30000)


def act(step):
    frame = numpy.full(32000, step % 251, dtype=numpy.uint8)  # NAMED
    replay.append(frame)


def main():
    pace.ready()
    for step in pace.steps(20):
        act(step)


main()
