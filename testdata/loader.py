#!/usr/bin/env python3
"""A real training loop on the CPU that leaks: pictures that DataLoader workers draw and augment with PIL, a small convolutional
net, AdamW. The main process paints one large picture a step, churns with copies of it, caches the last few, and keeps one
resized copy for ever, by one line. Deterministic.

Arguments: the number of DataLoader workers, 2 if there is none; that of labels, 0 if there is none; and the bytes of a note that it
keeps of each step, by another line, 0 if there is none. The labels are Python objects in a list, made before the workers are forked;
each worker reads all of them within READS pictures. Reading counts references: the worker writes to every page, and gets a copy of
it.

It speaks by lines: prints "ready", then for each line with a number N trains N steps, prints after each

    step NUMBER planted BYTES SECONDS

(the pixels of all that the line has kept so far; time.time() of that moment), then "free BYTES" (free memory that the C
library's allocator itself reports), prints "done", and exits at the end of its input.

In its steady state RSS grows by 1.2 to 1.3 bytes for each byte leaked: the rest is free heap between the pictures that stay.
"""

import collections
import ctypes
import itertools
import sys
import time

import numpy
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED, PICTURES, BATCH, CLASSES, READS = 20240607, 512, 16, 10, 1600
SIDE = 32  # of what the net sees
LARGE, KEPT, CACHED = (640, 480), (384, 288), 16
PIXEL = 4  # bytes that PIL takes for one of mode RGB


def say(text):
    print(text, flush=True)


class Pictures(Dataset):
    """Gradients, rotated by a random angle; the label is the number modulo the classes."""

    def __init__(self, labels):
        self.labels, self.pictures = [1000 + number for number in range(labels)], 0

    def read(self):
        part = len(self.labels) // READS
        first = self.pictures % READS * part
        self.pictures += 1
        return sum(self.labels[first : first + part])

    def __len__(self):
        return PICTURES

    def __getitem__(self, number):
        self.read()
        drawn = Image.radial_gradient("L").resize((160, 120)).convert("RGB")
        turned = drawn.rotate(float(torch.rand(())) * 360, Image.BICUBIC)
        small = turned.resize((SIDE, SIDE), Image.BILINEAR)
        return torch.from_numpy(numpy.array(small)).permute(2, 0, 1) / 255, number % CLASSES


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip


class Album:
    """What the trainer reads beside its work."""

    def __init__(self):
        self.kept, self.planted, self.notes = [], 0, []
        self.cache = collections.deque(maxlen=CACHED)

    def paint(self, images):
        pixels = (images[0] * 255).byte().permute(1, 2, 0).contiguous().numpy()
        return Image.fromarray(pixels).resize(LARGE, Image.BILINEAR)

    def churn(self, picture, step):
        turned = picture.rotate(step % 360)
        blurred = turned.filter(ImageFilter.BoxBlur(1)).convert("L")
        thumbnail = picture.copy()
        thumbnail.thumbnail((200, 150))
        self.cache.append(picture.resize((240 + step * 37 % 64, 180)))
        return blurred.getextrema(), thumbnail.getpixel((0, 0))

    def keep(self, picture):
        self.kept.append(picture.resize(KEPT))  # LEAK
        self.planted += KEPT[0] * KEPT[1] * PIXEL

    def note(self, size):
        self.notes.append(bytearray(b"x") * size)


def steps(workers, labels, note):
    """Trains for ever; yields the bytes leaked so far after each step."""
    loader = DataLoader(
        Pictures(labels), batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0,
    )  # fmt: skip
    net, album = make_net(), Album()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    while True:
        for images, labels in loader:
            optimizer.zero_grad()
            criterion(net(images), labels).backward()
            optimizer.step()
            picture = album.paint(images)
            album.churn(picture, len(album.kept))
            album.keep(picture)
            if note:
                album.note(note)
            yield album.planted


class Mallinfo2(ctypes.Structure):
    """struct mallinfo2 of malloc.h."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]


def free_heap():
    """Bytes in free chunks of all arenas."""
    mallinfo2 = ctypes.CDLL("libc.so.6").mallinfo2
    mallinfo2.restype = Mallinfo2
    return mallinfo2().fordblks


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    workers, labels, note = [int(text) for text in sys.argv[1:]] + [2, 0, 0][len(sys.argv) - 1 :]
    planted = enumerate(steps(workers, labels, note), 1)
    say("ready")
    for line in sys.stdin:
        for number, size in itertools.islice(planted, int(line)):
            say(f"step {number} planted {size} {time.time():.3f}")
        say(f"free {free_heap()}")
        say("done")


if __name__ == "__main__":
    main()
