"""What the programs of the cases have in common: they print "ready PID" and then do one step after the other, until they are killed."""

import os
import time


def run(step, per_second):
    print("ready", os.getpid(), flush=True)
    began, steps = time.monotonic(), 0
    while True:
        step()
        steps += 1
        time.sleep(max(0, began + steps / per_second - time.monotonic()))
