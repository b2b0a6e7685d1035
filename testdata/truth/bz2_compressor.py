"""BZ2Compressor.__init__ forgets the state of the library that it made before, until 3.13."""

import bz2

import paced

again = bz2.BZ2Compressor(1)


def leaking():
    again.__init__(1)  # NAMED


paced.run(leaking, lambda: bz2.BZ2Compressor(1), 2)
