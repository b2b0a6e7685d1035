"""Calls a function many times a second, or with the argument "clean" another one that does not leak."""

import os
import sys
import time


def run(leaking, clean, calls):
    """Makes so many calls each 50 ms."""
    call = clean if sys.argv[1:] == ["clean"] else leaking
    for _ in range(calls):
        call()
    print("ready", os.getpid(), flush=True)
    while True:
        began = time.monotonic()
        for _ in range(calls):
            call()
        time.sleep(max(0.0, began + 0.05 - time.monotonic()))
