"""A rank of a job, which RANK or SLURM_PROCID names. One rank leaks, in pieces of one line.

usage: leaky.py RANK BYTES_A_SECOND BASE_BYTES
"""

import os
import sys
import time

leaking, rate, base = (int(argument) for argument in sys.argv[1:])
rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "-1")))
STEP = 0.05  # seconds

kept = []
tables = bytearray(b"x") * base


def keep(size):
    kept.append(bytearray(b"x") * size)  # the leak


def work(size):
    return bytearray(b"x") * size


print("ready", flush=True)
due = time.monotonic()
while True:
    due += STEP
    time.sleep(max(0.0, due - time.monotonic()))
    work(100_000)
    if rank == leaking:
        keep(int(rate * STEP))
