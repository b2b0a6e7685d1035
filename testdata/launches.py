#!/usr/bin/env python3
"""A training loop that is bound by its launches, without a GPU: for each block of PyTorch's caching
allocator it works as long as one processor of this machine needs to have no time for more than PACE
blocks a second. The allocator is caching.cc beside a real libc10.

usage: launches.py LIBRARY [DEPTH [PACE]]

LIBRARY  launches.cc, linked with caching.cc as libc10_cuda.so
DEPTH    native frames of a block below Python (20)
PACE     blocks a second (54000), each of which is handed out and taken back

It prints "ready", executes one order a line, prints what the order asks for, then "done", and exits
at the end of its input.

train SECONDS  trains so long and prints "BLOCKS NS": how many blocks were handed out, and the CPU
               time of one
"""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])
depth = int(sys.argv[2]) if len(sys.argv) > 2 else 20
pace = int(sys.argv[3]) if len(sys.argv) > 3 else 54000
LAYERS, IN_LAYER = 25, 20  # blocks


def layer(rounds, blocks=IN_LAYER):
    library.launch_blocks(blocks, depth, rounds)


def forward(rounds):
    for _ in range(LAYERS):
        layer(rounds)


def cpu_ns(rounds):
    """Returns the CPU time of one block, in ns: the least disturbed of several measurements."""

    def measured(blocks=2000):
        started = time.thread_time_ns()
        layer(rounds, blocks)
        return (time.thread_time_ns() - started) / blocks

    return min(measured() for _ in range(10))


def calibrated():
    """Returns the rounds of work for a block."""
    few, many = cpu_ns(1000), cpu_ns(11000)
    return int(1000 + (1e9 / pace - few) / (many - few) * 10000)


def train(rounds, seconds):
    end, used, blocks = time.monotonic() + seconds, time.thread_time_ns(), 0
    while time.monotonic() < end:
        forward(rounds)
        blocks += LAYERS * IN_LAYER
    print(blocks, (time.thread_time_ns() - used) / blocks)


def main():
    rounds = calibrated()
    print("ready", flush=True)
    for line in sys.stdin:
        _, seconds = line.split()
        train(rounds, float(seconds))
        print("done", flush=True)


if __name__ == "__main__":
    main()
