"""A launcher of ranks, each with forked workers, all of which allocate and compute a little. The first rank leaks."""

import os
import time

import case

RANKS, WORKERS = 8, 4
OBJECTS = 20_000
LEAKED = 20_000  # bytes

kept = []


def churn():
    return sum(len(str(number)) for number in range(OBJECTS))


def work():
    while True:
        churn()
        time.sleep(0.1)


def rank(number):
    for _ in range(WORKERS):
        if os.fork() == 0:
            work()
    while True:
        churn()
        if number == 0:
            kept.append(bytearray(LEAKED))  # NAMED
        time.sleep(0.05)


def main():
    for number in range(RANKS):
        if os.fork() == 0:
            os.environ["RANK"] = str(number)
            rank(number)
    case.run(lambda: None, 1)


if __name__ == "__main__":
    main()
