"""A loop decodes and turns pictures, and keeps a thumbnail of each, by one line. It uses a tenth of a core."""

import io
import random

import case
from PIL import Image

DRAWN, THUMBNAIL = (640, 480), (128, 128)  # pixels

picture = Image.effect_mandelbrot(DRAWN, (-2, -1.5, 1, 1.5), 20).convert("RGB")
encoded = io.BytesIO()
picture.save(encoded, "JPEG")
kept = []


def step():
    loaded = Image.open(io.BytesIO(encoded.getvalue())).convert("RGB")
    turned = loaded.rotate(random.uniform(-20, 20)).resize(DRAWN)
    kept.append(turned.resize(THUMBNAIL))  # NAMED


if __name__ == "__main__":
    case.run(step, 15)
