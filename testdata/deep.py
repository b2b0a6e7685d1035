#!/usr/bin/env python3
"""Maps and unmaps a page from deep in a stack of Python and C, as often as ordered.

It speaks by lines: prints "ready", then for each line with a number N maps N times, prints "done", and exits at the end of its
input. The stack has some 40 frames: sorted() and reduce() call back into Python.
"""

import functools
import mmap
import sys

LEVELS = 3


def work(times):
    for _ in range(times):
        mmap.mmap(-1, mmap.PAGESIZE).close()


def descend(level, times):
    if level == 0:
        work(times)
    elif level % 2:
        functools.reduce(lambda _, n: descend(level - 1, n), [times], None)
    else:
        sorted([times], key=lambda n: descend(level - 1, n) or n)


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        descend(LEVELS, int(line))
        print("done", flush=True)


if __name__ == "__main__":
    main()
