"""Reads a large file through numpy.memmap, once. Its pages count as resident, but the kernel can drop them at any time: datasets#4883."""

import tempfile

import case
import numpy

SIZE, PART = 4 << 30, 1 << 20  # bytes

with tempfile.NamedTemporaryFile() as file:
    file.truncate(SIZE)
    data = numpy.memmap(file.name, numpy.uint8, "r")
at = 0


def step():
    global at
    data[at : at + PART].max()
    at = (at + PART) % SIZE


if __name__ == "__main__":
    case.run(step, 8)
