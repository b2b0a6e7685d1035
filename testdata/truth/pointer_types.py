"""ctypes keeps each pointer type in a dict for ever (gh-100926)."""

import ctypes

import paced


def point():
    return type("Point", (ctypes.Structure,), {"_fields_": [("x", ctypes.c_int)]})


def leaking():
    ctypes.POINTER(point())  # NAMED


paced.run(leaking, point, 10)
