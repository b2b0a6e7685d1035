#!/usr/bin/env python3
"""A small trainer with a leak that is easy to write and hard to see.

Every step loads and augments a batch of images. `decoded` caches some decoded images; it is full
after the first epoch, ten seconds, and is the warm-up. `cache` keeps one augmented image of each
step "for the next epoch", by the number of the step, which never comes again: that is the leak,
6 MB a second. Each step also frees many times as much as it leaks, as a real training loop does.

It takes Pillow where that is installed, and arrays of bytes otherwise.

Start it, and trace the PID that it prints; docs/tutorial.md goes on to the fix:

    python3 examples/leaky_trainer.py &
    sudo allocscope trace PID --duration 3m
"""

import os
import time

try:
    from PIL import Image
except ImportError:
    Image = None

EPOCH, BATCH = 400, 8  # steps, images

decoded, cache = {}, {}


class Buffer:
    """An image without Pillow."""

    def __init__(self, width, height):
        self.pixels = bytearray(width * height * 3)


def new_image(width, height):
    return Image.new("RGB", (width, height)) if Image else Buffer(width, height)


# A real trainer changes each image at random. Here augment turns it, and makes it smaller: a new
# image of 150,528 bytes.
def augment(image):
    if not Image:
        return Buffer(224, 224)

    return image.rotate(5).resize((224, 224))


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
    print(f"leaky trainer, pid {os.getpid()}, images by {'Pillow' if Image else 'Python'}", flush=True)
    step = 0
    while True:
        started = time.monotonic()
        load_batch(step)
        step += 1
        time.sleep(max(0.0, 0.025 - (time.monotonic() - started)))


if __name__ == "__main__":
    main()
