"""Makes a file of 1 MiB in RAM each second, and removes none. The process itself is flat."""

import os
import sys

import pace


def main():
    pace.ready()
    for step in pace.steps(1):
        with open(os.path.join(sys.argv[1], "batch%d" % step), "wb") as file:
            file.write(bytes(1 << 20))


main()
