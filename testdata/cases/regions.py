"""A library maps a region for each message, registers it and never gives it back, as UCX did below vLLM's transfers: the memory is
mapped besides malloc.
"""

import mmap

import case

REGION = 256 << 10  # bytes

registered = []


def step():
    region = mmap.mmap(-1, REGION, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # NAMED
    region.write(bytes(REGION))
    registered.append(region)


if __name__ == "__main__":
    case.run(step, 8)
