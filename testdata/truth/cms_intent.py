"""The properties of a colour profile leak what they are made of (Pillow 9.4)."""

import paced
from PIL import ImageCms

profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).profile


def leaking():
    profile.intent_supported  # NAMED


paced.run(leaking, lambda: profile.rendering_intent, 150)
