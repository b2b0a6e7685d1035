"""A cache with a limit of entries and none of bytes: it grows with each new key, and stops once it is full: tokenizers#1539."""

import functools
import itertools

import case

ENTRIES, SIZE = 480, 64 << 10  # bytes

keys = itertools.count()


@functools.lru_cache(maxsize=ENTRIES)
def encode(_):
    return bytes(SIZE)


if __name__ == "__main__":
    case.run(lambda: encode(next(keys)), 8)
