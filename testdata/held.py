"""Holds a given number of bytes in small objects, and measures itself: held.py BYTES.

Prints "ready PID", and then at each line of input how long the steps of its work took since the last one: the
median, the 99th percentile, the 99.9th and the longest, in microseconds. A step makes and frees objects, and
maps and unmaps memory.
"""

import mmap
import os
import select
import sys
import time


class Record:
    __slots__ = ("number", "text", "next")

    def __init__(self, number):
        self.number, self.text, self.next = number + 0.5, bytes(70), None


def step():
    began = time.perf_counter()
    kept = [Record(number) for number in range(20)]
    with mmap.mmap(-1, 1 << 16) as memory:
        memory[0] = len(kept)
    return time.perf_counter() - began


def main():
    size = int(sys.argv[1])
    bytes_each = 64 + 112 + 32 + 8 + 48  # record, text, float, its place in the list, a dict's share
    held = [Record(number) for number in range(max(1, size // bytes_each))]
    print("ready", os.getpid(), len(held), flush=True)
    taken = []
    while True:
        taken.append(step())
        if select.select([0], [], [], 0)[0]:
            if not os.read(0, 4096):
                return
            taken.sort()
            at = [taken[int(share * (len(taken) - 1))] for share in (0.5, 0.99, 0.999, 1)]
            print(len(taken), *(round(1e6 * value, 1) for value in at), flush=True)
            taken = []


if __name__ == "__main__":
    main()
