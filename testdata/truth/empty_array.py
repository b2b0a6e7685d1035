"""array("u", "") makes a buffer of no bytes that it does not free (gh-140474)."""

import array

import paced


def make(text):
    array.array("u", text)  # NAMED


paced.run(lambda: make(""), lambda: make("a"), 2500)
