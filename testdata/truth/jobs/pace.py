"""Steps on a schedule, so that a program grows at the same rate on a busy machine."""

import os
import time


def ready():
    print("ready", os.getpid(), flush=True)


def steps(a_second):
    """Yields the number of each step, so many a second."""
    began = time.monotonic()
    step = 0
    while True:
        yield step
        step += 1
        time.sleep(max(0.0, began + step / a_second - time.monotonic()))
