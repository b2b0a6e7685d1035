"""Keeps the thumbnail of each image. A leak of 1.1 MiB a second."""

from PIL import Image

import pace

thumbnails = []


def make(image):
    small = image.resize((192, 192))  # NAMED
    thumbnails.append(small)


def main():
    image = Image.new("RGB", (512, 512), (10, 20, 30))
    pace.ready()
    for _ in pace.steps(8):
        make(image)


main()
