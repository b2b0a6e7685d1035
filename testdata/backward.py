#!/usr/bin/env python3
"""Runs backward passes with torch: prints "ready", then for each line with a number N runs N of them, half in another thread,
and prints "done". A forward pass goes with each, and one without a backward pass beside it."""

import sys
import threading

import torch


def run(net, passes):
    for _ in range(passes):
        net(torch.ones(4, 8)).sum().backward()
        with torch.no_grad():
            net(torch.ones(4, 8))


def main():
    torch.set_num_threads(1)
    net = torch.nn.Linear(8, 8)
    print("ready", flush=True)
    for line in sys.stdin:
        passes = int(line)
        other = threading.Thread(target=run, args=(torch.nn.Linear(8, 8), passes // 2))
        other.start()
        run(net, passes - passes // 2)
        other.join()
        print("done", flush=True)


if __name__ == "__main__":
    main()
