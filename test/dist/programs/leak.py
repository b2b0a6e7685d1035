"""A trainer with a leak: leak.py list|tensor

Each step decodes a batch, which is freed, and keeps one buffer of 1 MiB for good: a bytearray, or a
tensor. Ten steps a second. Each step prints how many buffers are kept.
"""

import sys
import time

MIB = 1 << 20
STEPS_PER_SECOND = 10

kept = []


def keep_buffer():
    kept.append(bytearray(MIB))  # the leak


def keep_tensor():
    kept.append(torch.ones(MIB // 4))  # the leak


def decode():
    return [bytearray(MIB // 8) for _ in range(4)]


def main(keep):
    begun = time.monotonic()
    while True:
        decode()
        keep()
        print(len(kept), flush=True)
        time.sleep(max(0.0, begun + len(kept) / STEPS_PER_SECOND - time.monotonic()))


if __name__ == "__main__":
    if sys.argv[1] == "tensor":
        import torch

        main(keep_tensor)
    main(keep_buffer)
