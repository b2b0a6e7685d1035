#!/usr/bin/env python3
"""Maps pieces of one size by two lines that the machine's stack does not tell apart.

It speaks by lines: prints "ready", then for each line "N M" storm() maps and unmaps N pieces while keep() maps M, prints "done",
and exits at the end of its input.
"""

import mmap
import sys

SIZE = 1 << 20
kept = []


def storm():
    mmap.mmap(-1, SIZE).close()


def keep():
    kept.append(mmap.mmap(-1, SIZE))


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        storms, pieces = map(int, line.split())
        for i in range(storms):
            storm()
            if i * pieces // storms != (i + 1) * pieces // storms:
                keep()
        print("done", flush=True)


if __name__ == "__main__":
    main()
