"""Serves requests of many lengths, each with a "kernel" of its own; --fixed: one for all lengths.

A rebuild of the mechanism without Triton: a kernel is 24 KiB of binary and a page of code.
"""

import mmap
import random
import sys
import time

FIXED = "--fixed" in sys.argv
BINARY_BYTES, REQUESTS_PER_SECOND = 24 << 10, 30
PROTECTION = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC

kernels = {}


class CompiledKernel:
    def __init__(self, name):
        self.binary = name.encode().ljust(BINARY_BYTES, b"\0")
        self.code = mmap.mmap(-1, mmap.PAGESIZE, prot=PROTECTION)
        self.code.write(self.binary[: mmap.PAGESIZE])


def compiled(length):
    # `length` as a constant of the kernel is a part of the key; as an argument it is not.
    key = "logits" if FIXED else f"logits, length {length}"
    if key not in kernels:
        kernels[key] = CompiledKernel(key)
    return kernels[key]


while True:
    compiled(random.randrange(1 << 20))
    time.sleep(1 / REQUESTS_PER_SECOND)
