"""What the programs have in common: an object to keep, its growth, and what a program says of itself.

A program prints "ready PID", the truth of its objects, and "done". Then it keeps one object more every
quarter of a second until its input ends. A line of input is answered with the truth again. With the argument
"check" it prints who keeps the objects by the account of gc, and ends.
"""

import ctypes
import gc
import os
import select
import sys

if "check" in sys.argv:
    import oracle  # now: later it would take memory that is to stay free

addresses = []  # of the objects that the program has noted
kind = None  # their type; None: memory without one


class Item:
    """What most programs keep."""

    def __init__(self):
        self.payload = bytearray(64)


class Wide:
    """An object of a size that few have: its memory stays free when it was freed."""

    __slots__ = ["slot%d" % number for number in range(59)] + ["__weakref__"]


def noted(thing):
    """Notes the address of a thing that is kept, and returns it."""
    global kind
    kind = type(thing)
    addresses.append(id(thing))
    return thing


def item():
    return noted(Item())


def samples():
    """Eight of the addresses: those of the first and the last thing too."""
    return [addresses[i * (len(addresses) - 1) // 7] for i in range(8)]


def answer():
    print("type", kind.__module__ + "." + kind.__qualname__ if kind else "")
    print("objects", *map(hex, samples()))
    print("noted", len(addresses))
    print("live", sum(type(thing) is kind for thing in gc.get_objects()))
    print("done", flush=True)


def ready():
    if "check" in sys.argv:
        oracle.report(samples())
    print("ready", os.getpid())
    answer()


def going_on():
    """Waits a quarter of a second. Returns False when the input has ended."""
    if select.select([0], [], [], 0.25)[0]:
        if not os.read(0, 4096):
            return False
        answer()
    return True


def steps(first=300, grow=True):
    """Yields the numbers of the steps in each of which the program keeps one object."""
    yield from range(first)
    ready()
    while going_on():
        if grow:
            first += 1
            yield first


def lost(thing):
    """Takes a reference that nobody releases, as a defect of a C function does, and returns the thing."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
