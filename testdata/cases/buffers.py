"""Large buffers of all sizes come and go beside small results. malloc takes them from its heap, where it keeps what they leave: first it
climbs, then it stays: pytorch#41486.
"""

import collections
import random

import case

SMALLEST, LARGEST = 1 << 20, 24 << 20  # bytes
BUFFERS = 6  # at once
RESULT, KEPT = 40_000, 300  # bytes, results

buffers = collections.deque(maxlen=BUFFERS)
results = collections.deque(maxlen=KEPT)


def step():
    buffers.append(bytearray(random.randrange(SMALLEST, LARGEST)))
    results.append(bytes(RESULT))


if __name__ == "__main__":
    case.run(step, 8)
