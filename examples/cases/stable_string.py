"""Calls an operator of C++ 20,000 times a second, with a text as argument; --fixed: its fix."""

import ctypes
import sys
import time

FIXED = "--fixed" in sys.argv
CALLS_PER_STEP, STEPS_PER_SECOND = 1000, 20

operators = ctypes.CDLL("./stable_string.so")


def decode_step():
    for _ in range(CALLS_PER_STEP):
        operators.store_page(b"auto", FIXED)


while True:
    decode_step()
    time.sleep(1 / STEPS_PER_SECOND)
