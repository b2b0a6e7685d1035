"""BufferedRWPair.__init__ forgets the reader and the writer that it made before; not fixed in 3.14."""

import io

import paced

pair = io.BufferedRWPair(io.BytesIO(), io.BytesIO())


def leaking():
    pair.__init__(io.BytesIO(), io.BytesIO())  # NAMED


paced.run(leaking, lambda: io.BufferedRWPair(io.BytesIO(), io.BytesIO()), 6)
