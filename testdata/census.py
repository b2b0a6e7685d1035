"""Objects whose number is known, while a thread makes and drops others.

It prints "ready" and answers each line of input with "count TYPE NUMBER" for each type, by gc or by its own
account, "blocks NUMBER" as pymalloc counts its blocks, and "done".
"""

import collections
import gc
import os
import re
import sys
import tempfile
import threading
import time

CHURNED = 100  # of a type, at a time


class Thing:
    def __init__(self, number):
        self.number = number


class Slotted:
    __slots__ = ("first", "second")


class Buffer(bytearray):
    pass


class Large:
    """More than 512 bytes: not pymalloc's."""

    __slots__ = ["slot%d" % number for number in range(100)]


class Passing:
    pass


def churn():
    while True:
        passing = [Passing() for number in range(CHURNED)]
        passing = [[number] for number in range(CHURNED - 2)]
        passing = [{number: passing} for number in range(CHURNED)]
        passing = [bytearray(number * 40) for number in range(CHURNED)]
        passing = [{number} for number in range(CHURNED)]
        time.sleep(0.001)


def blocks():
    """Blocks in use, by sys._debugmallocstats: sys.getallocatedblocks counts those of malloc too."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        sys._debugmallocstats()
        os.dup2(kept, 2)
        os.close(kept)
        file.seek(0)
        rows = re.findall(rb"^ +\d+ +\d+ +\d+ +(\d+) +\d+$", file.read(), re.MULTILINE)
    return sum(map(int, rows))


things = [Thing(number) for number in range(50000)]
slotted = [Slotted() for number in range(50000)]
plain = [bytearray(10) for number in range(20000)]
buffers = [Buffer(number % 2000) for number in range(5000)]
large = [Large() for number in range(3000)]
lists = [[None] * (number % 300) for number in range(4000)]
sets = [set(range(number % 50)) for number in range(2000)]
queues = [collections.deque([number]) for number in range(1000)]
functions = [(lambda: number) for number in range(1500)]

del things[::3], slotted[1::3], large[::7]  # what was freed does not count
OWN = {Thing: things, Slotted: slotted, Buffer: buffers, Large: large, bytearray: plain}
BY_GC = [list, set, collections.deque, type(churn)]

threading.Thread(target=churn, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    counted = collections.Counter(map(type, gc.get_objects()))
    for kind in BY_GC:
        print("count", kind.__module__ + "." + kind.__qualname__, counted[kind])
    for kind, objects in OWN.items():
        print("count", kind.__module__ + "." + kind.__qualname__, len(objects))
    print("blocks", blocks())
    print("done", flush=True)
