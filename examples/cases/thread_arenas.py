"""Serves ever more requests at a time, a thread for each; --fixed: two arenas of malloc at most."""

import collections
import ctypes
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

FIXED = "--fixed" in sys.argv
BUFFERS, SMALLEST, LARGEST = 200, 20_000, 100_000  # bytes: below 128 KiB, malloc takes an arena
MOST_THREADS, SECONDS_PER_THREAD = 14, 7
M_ARENA_MAX = -8  # malloc.h

if FIXED:
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 2)

results = collections.deque(maxlen=64)


def handle(_):
    buffers = [bytearray(random.randrange(SMALLEST, LARGEST)) for _ in range(BUFFERS)]
    results.append(bytearray(1000))  # above the buffers in the arena
    del buffers
    time.sleep(0.2)


started = time.monotonic()
while True:
    threads = min(1 + int((time.monotonic() - started) / SECONDS_PER_THREAD), MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(handle, range(threads)))
