"""A cache of 6,000 keys that come at random, 50 kB each: it levels off near 290 MiB."""

import random

import pace

cache = {}


def look(key):
    if key not in cache:
        cache[key] = bytearray(50000 + key % 7)  # NAMED
    return cache[key]


def main():
    random.seed(1)
    pace.ready()
    for _ in pace.steps(10):
        for _ in range(8):
            look(random.randrange(6000))


main()
