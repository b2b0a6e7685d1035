"""ctypes keeps each pointer type in a dict for ever (gh-100926)."""

import ctypes

import paced


def leaking(pointer=True):
    kind = type("Point", (ctypes.Structure,), {"_fields_": [("x", ctypes.c_int)]})
    if pointer:
        ctypes.POINTER(kind)  # NAMED


paced.run(leaking, lambda: leaking(False), 10)
