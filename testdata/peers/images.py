#!/usr/bin/env python3
"""A trainer whose time goes into loading data: pictures that Pillow decodes and augments, and a small convolutional net. It keeps
thumbnails of the last pictures for a while, and a copy of one picture in each step for ever, by one line. Both have one size. See peer.py.
"""

import collections
import io
import random

import numpy
import torch
from PIL import Image, ImageFilter
from torch import nn

import peer

PICTURES, BATCH, CLASSES, SIDE = 64, 8, 10, 32
DRAWN, THUMBNAIL = (320, 240), (144, 108)
PIXEL = 4  # bytes that Pillow takes for one of mode RGB
REMEMBERED = 400  # pictures


def draw(number):
    """A picture as the bytes of a JPEG file."""
    picture = Image.effect_mandelbrot(DRAWN, (-2, -1.5, 1, 1.5), 20 + number).convert("RGB")
    encoded = io.BytesIO()
    picture.save(encoded, "JPEG")
    return encoded.getvalue()


class Trainer:
    def __init__(self):
        self.files = [draw(number) for number in range(PICTURES)]
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 7 * 7, CLASSES),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.recent = collections.deque(maxlen=REMEMBERED)
        self.kept, self.planted = [], 0

    def load(self, number):
        picture = Image.open(io.BytesIO(self.files[number])).convert("RGB")
        self.remember(picture)
        turned = picture.rotate(random.uniform(-20, 20), Image.Resampling.BILINEAR).filter(ImageFilter.BoxBlur(1))
        small = turned.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return picture, torch.from_numpy(numpy.array(small)).permute(2, 0, 1) / 255

    def step(self):
        numbers = [random.randrange(PICTURES) for _ in range(BATCH)]
        pictures, tensors = zip(*[self.load(number) for number in numbers], strict=True)
        scores = self.net(torch.stack(tensors))
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(scores, torch.tensor([number % CLASSES for number in numbers])).backward()
        self.optimizer.step()
        self.keep(pictures[0])

    def remember(self, picture):
        self.recent.append(picture.resize(THUMBNAIL))  # CACHE

    def keep(self, picture):
        self.kept.append(picture.resize(THUMBNAIL))  # LEAK
        self.planted += THUMBNAIL[0] * THUMBNAIL[1] * PIXEL


def main():
    random.seed(20240607)
    torch.manual_seed(20240607)
    torch.set_num_threads(1)
    peer.serve(Trainer(), REMEMBERED // BATCH)


if __name__ == "__main__":
    main()
