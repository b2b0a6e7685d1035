"""What the programs here have in common: they print "ready PID" and then do one step after the
other, until they are killed.

They run in the folder that testdata/gpu/debian.sh prints. Between two steps each knows its truth to
the byte:

--snapshot PATH  on SIGUSR1 the program writes torch.cuda.memory._snapshot() to PATH, pickled,
                 between two steps. PATH appears when it is whole. Then the program prints its
                 figures and does nothing for HOLD seconds
--empty          it holds still until another SIGUSR1. Then it calls torch.cuda.empty_cache() and
                 prints its figures again
--figures        it prints its figures every second, too

Figures are one line of "NAME VALUE" pairs. The program adds its own, as it counts them itself. The
others are of torch.cuda.memory_stats():

allocated, active, reserved  bytes; the same as memory_allocated() and memory_reserved() give
requested                    bytes of allocated, before they were rounded up
segments, blocks             numbers: the allocator's segments, and the blocks in use in them
peak_allocated, peak_reserved  bytes, since the start
retries, ooms                numbers: calls of the driver that failed until the cache was emptied, and
                             errors thrown
"""

import argparse
import os
import pickle
import signal
import time

import torch

HOLD = 2  # seconds
KIB, MIB = 1 << 10, 1 << 20
STEPS_PER_SECOND = 200


def tensor(size):
    """Gives a tensor of so many bytes on the GPU."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def say(own):
    stats = torch.cuda.memory_stats()
    figures = {
        "allocated": stats["allocated_bytes.all.current"],
        "active": stats["active_bytes.all.current"],
        "reserved": stats["reserved_bytes.all.current"],
        "requested": stats["requested_bytes.all.current"],
        "segments": stats["segment.all.current"],
        "blocks": stats["allocation.all.current"],
        "peak_allocated": stats["allocated_bytes.all.peak"],
        "peak_reserved": stats["reserved_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
        "ooms": stats["num_ooms"],
    }
    print(*(f"{name} {value}" for name, value in {**figures, **own}.items()), flush=True)


def save(path):
    with open(path + ".part", "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file)
    os.rename(path + ".part", path)


def empty(asked):
    """Waits for a signal, and says what is left of the cache."""
    while not asked:
        time.sleep(0.1)
    asked.clear()
    torch.cuda.empty_cache()
    say({})


def run(step, truth):
    """Calls step(n) for n from 0 on. truth() gives the program's own figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--snapshot")
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--figures", action="store_true")
    chosen = parser.parse_args()

    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    torch.cuda.init()
    print("ready", os.getpid(), flush=True)
    n = 0
    due = time.monotonic()
    while True:
        step(n)
        n += 1
        if chosen.figures and n % STEPS_PER_SECOND == 0:
            say(truth())
        if asked and chosen.snapshot:
            asked.clear()
            save(chosen.snapshot)
            say(truth())
            if chosen.empty:
                empty(asked)
            else:
                time.sleep(HOLD)
        due = max(due + 1 / STEPS_PER_SECOND, time.monotonic() - 1)
        time.sleep(max(0, due - time.monotonic()))
