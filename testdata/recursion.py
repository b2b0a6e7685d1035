"""Allocates once for each line of its input, from so many calls deep.

usage: recursion.py CALLS
"""

import sys

kept = []


def descend(calls):
    if calls:
        descend(calls - 1)  # call
    else:
        kept.append(bytearray(700))  # leaf


def main():
    sys.setrecursionlimit(4000)
    print("ready", flush=True)
    for _ in sys.stdin:
        descend(int(sys.argv[1]))  # main
        print("done", flush=True)


if __name__ == "__main__":
    main()  # module
