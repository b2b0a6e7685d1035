#!/usr/bin/env python3
"""A small trainer with a leak that is easy to write and hard to see.

Every step loads and augments a batch of images, as a data set does. Some decoded images are cached, which is done after the
first epoch of ten seconds: that is warm-up. Augmented images are kept "for the next epoch" in a dictionary keyed by the step,
so that none is ever found again: some 6 MB a second that nobody asked for. Around the leak there is the churn of a real
loop, many times as many allocations that come and go.

Uses Pillow where it is installed, and the C library through ctypes otherwise.
"""

import ctypes
import os
import time

try:
    from PIL import Image
except ImportError:
    Image = None

LIBC = ctypes.CDLL(None)
LIBC.calloc.restype = ctypes.c_void_p
LIBC.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
LIBC.free.argtypes = [ctypes.c_void_p]

EPOCH, BATCH = 400, 8  # steps, images

decoded, cache = {}, {}


class Buffer:
    """An image without Pillow: memory of the C library."""

    def __init__(self, width, height):
        self.pointer = LIBC.calloc(width * height, 3)

    def __del__(self):
        LIBC.free(self.pointer)


def new_image(width, height):
    return Image.new("RGB", (width, height)) if Image else Buffer(width, height)


def augment(image):
    if Image:
        return image.rotate(5).resize((224, 224))
    return Buffer(224, 224)


def decode(key):
    if key in decoded:
        return decoded[key]
    image = new_image(256, 256)
    if key % BATCH == 0:
        decoded[key] = image  # full after the first epoch
    return image


def load_batch(step):
    first = step % EPOCH * BATCH
    augmented = [augment(decode(key)) for key in range(first, first + BATCH)]
    cache[step] = augmented[0]  # the leak
    return augmented


def main():
    print(f"leaky trainer, pid {os.getpid()}, images by {'Pillow' if Image else 'ctypes'}", flush=True)
    step = 0
    while True:
        started = time.monotonic()
        load_batch(step)
        step += 1
        time.sleep(max(0.0, 0.025 - (time.monotonic() - started)))


if __name__ == "__main__":
    main()
