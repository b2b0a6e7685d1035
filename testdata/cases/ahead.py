"""A decoder in a thread runs ahead of the loop that takes its frames: the queue between them has no bound: decord#208."""

import io
import queue
import threading
import time

import case
from PIL import Image

DRAWN = (320, 240)  # pixels
DECODED, TAKEN = 16, 4  # frames a second

picture = Image.effect_mandelbrot(DRAWN, (-2, -1.5, 1, 1.5), 20).convert("RGB")
encoded = io.BytesIO()
picture.save(encoded, "JPEG")
frames = queue.Queue()


def decode():
    while True:
        frames.put(Image.open(io.BytesIO(encoded.getvalue())).convert("RGB"))  # NAMED
        time.sleep(1 / DECODED)


def step():
    frames.get().getpixel((0, 0))


if __name__ == "__main__":
    threading.Thread(target=decode, daemon=True).start()
    case.run(step, TAKEN)
