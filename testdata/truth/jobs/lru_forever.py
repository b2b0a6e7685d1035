"""A cache without a limit, of a key that never comes again. A leak of 0.8 MiB a second."""

import functools

import numpy

import pace


@functools.lru_cache(maxsize=None)
def features(request):
    return numpy.full(5000, request, dtype=float)  # NAMED


def main():
    pace.ready()
    for request in pace.steps(20):
        features(request).sum()


main()
