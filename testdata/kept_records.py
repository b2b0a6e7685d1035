"""Keeps records as ordered: each order is a line, and is answered by "done".

keep N    keeps N more in a dict of this module, and prints their addresses
count     prints how many there are, as the garbage collector knows them
"""

import gc
import sys


class Record:
    def __init__(self, size):
        self.payload = bytes(size)


SIZE = 5000  # of a payload, which malloc serves
cache = {}


def keep(n):
    first = len(cache)
    for i in range(first, first + n):
        cache[i] = Record(SIZE)
    return [id(cache[i]) for i in range(first, first + n)]


def count():
    return sum(type(o) is Record for o in gc.get_objects())


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        order, _, n = line.partition(" ")
        if order == "keep":
            print(*keep(int(n)))
        else:
            print(count())
        print("done", flush=True)


main()
