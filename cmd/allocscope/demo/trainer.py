"""A trainer with a leak, for `allocscope demo`. It needs nothing but Python.

Each step decodes a batch, looks at the samples of the last steps, and keeps what it has learned of
the batch. Most of what it allocates is freed at once. One of its two caches is bounded. The other
one only grows, by about 3 MiB a second.
"""

import time

STEPS_PER_SECOND = 32
BATCH = 8  # samples of a step
SAMPLE_BYTES = 96 * 1024
RECENT_STEPS = 256  # 24 MiB, full after eight seconds

recent = {}
learned = {}


def decode(step):
    return [bytearray(SAMPLE_BYTES) for _ in range(BATCH)]


def remember_recent(step, sample):
    # A bounded cache: a step replaces the one of 256 steps ago.
    recent[step % RECENT_STEPS] = bytes(sample)


def keep_learned(step, sample):
    # The leak: a step's number never comes again, so that nothing is ever replaced.
    # To fix it, keep the last steps only: learned[step % RECENT_STEPS] = ...
    learned[step] = bytes(sample)


def train(step):
    batch = decode(step)
    remember_recent(step, batch[0])
    keep_learned(step, batch[1])


def main():
    print("ready", flush=True)
    step, begun = 0, time.monotonic()
    while True:
        train(step)
        step += 1
        time.sleep(max(0.0, begun + step / STEPS_PER_SECOND - time.monotonic()))


if __name__ == "__main__":
    main()
