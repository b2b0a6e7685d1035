"""getpixel leaks the ints that it makes of NumPy's (Pillow 9487)."""

import numpy
import paced
from PIL import Image

image = Image.new("RGB", (1000, 1000))


def leaking(kind=numpy.int64):
    image.getpixel((kind(700), kind(800)))  # NAMED


paced.run(leaking, lambda: leaking(int), 600)
