"""A dict keeps images of Pillow, and these their pixels."""
# KEPT BY: pillow_images.cache
# CONTAINER: dict
# NEEDS: PIL
import PIL.Image

import case

cache = {}
for step in case.steps():
    cache[step] = PIL.Image.new("RGB", (64, 64))
    case.noted(cache[step].im)
