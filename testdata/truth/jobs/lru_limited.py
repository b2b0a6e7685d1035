"""A cache of 20,000 entries of 40 kB that fills within 17 minutes."""

import functools

import numpy

import pace


@functools.lru_cache(maxsize=20000)
def features(request):
    return numpy.full(5000, request, dtype=float)  # NAMED


def main():
    pace.ready()
    for request in pace.steps(20):
        features(request).sum()


main()
