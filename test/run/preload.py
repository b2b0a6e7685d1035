"""Preloads jemalloc by executing itself again, as some launchers do, and keeps 64 MiB for a while.

The argument says whether jemalloc comes first or last in LD_PRELOAD.
"""

import ctypes
import os
import sys
import time

ALLOCATOR = "libjemalloc.so.2"

preload = os.environ.get("LD_PRELOAD", "")
if ALLOCATOR not in preload:
    names = [ALLOCATOR, preload] if sys.argv[1] == "first" else [preload, ALLOCATOR]
    os.environ["LD_PRELOAD"] = ":".join(filter(None, names))
    os.execv(sys.executable, [sys.executable, *sys.argv])


def keep():
    return [ctypes.create_string_buffer(1 << 20) for _ in range(64)]


time.sleep(1)  # until the tables of all libraries are there, for whole stacks
kept = keep()
time.sleep(6)
with open("/proc/self/maps") as maps:
    print("jemalloc", any(ALLOCATOR in line for line in maps))
