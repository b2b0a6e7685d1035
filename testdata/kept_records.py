"""Keeps records as ordered: each order is a line, and is answered by "done".

keep N    keeps N more in a dict of this module, and prints their addresses
count     prints how many there are, as the garbage collector knows them
namesake  keeps an object of another type Record, of another module
clear     keeps no records any more
exec      executes this program again: it has no records, and is ready
"""

import gc
import os
import sys


class Record:
    def __init__(self, size):
        self.payload = bytes(size)


SIZE = 5000  # of a payload, which malloc serves
cache = {}
namesakes = []


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
        order = order.strip()
        if order == "keep":
            print(*keep(int(n)))
        elif order == "namesake":
            namesakes.append(type("Record", (), {"__module__": "other"})())
        elif order == "clear":
            cache.clear()
        elif order == "exec":
            os.execv(sys.executable, [sys.executable, *sys.argv])
        else:
            print(count())
        print("done", flush=True)


main()
