"""A training loop with a validation that holds memory for some seconds, repeatedly.

usage: spikes.py EVERY SECONDS MIB PACE

Steady work is temporary memory, at a PACE of so many objects a step; a cache is bounded. Each EVERY seconds validate() holds MIB for
SECONDS, in objects of 256 KiB, from the heap. It writes "spike BYTES" to standard output each time, and "done" before
SIGTERM ends it.
"""

import ctypes
import os
import signal
import sys
import time


def work(pace):
    batch = [bytearray(1000 + 10 * i % 9000) for i in range(pace)]
    return sum(len(b) for b in batch)


def remember(cache, step):
    cache.append(bytearray(50_000))
    del cache[:-200]
    return step


def validate(seconds, mib):
    held = []
    for _ in range(4 * mib):
        held.append(filled(256 << 10))  # HELD
    print("spike", sum(len(h) for h in held), flush=True)
    time.sleep(seconds)


def filled(size):
    return bytearray(b"x") * size


def end(*_):
    os.write(1, b"done\n")
    os._exit(0)


def main():
    signal.signal(signal.SIGTERM, end)
    every, seconds, mib = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    pace = int(sys.argv[4])
    cache, step = [], 0
    print("ready", flush=True)
    due = time.monotonic() + every
    while True:
        work(pace)
        step = remember(cache, step) + 1
        time.sleep(0.01)
        if time.monotonic() >= due:
            validate(seconds, mib)
            ctypes.CDLL(None).malloc_trim(0)  # a small object at the top would keep all below it
            due += every


main()
