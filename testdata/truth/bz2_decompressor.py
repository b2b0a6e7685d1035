"""BZ2Decompressor.__init__ forgets the state of the library that it made before (bpo-23224)."""

import bz2

import paced

again = bz2.BZ2Decompressor()


def leaking():
    again.__init__()  # NAMED


paced.run(leaking, bz2.BZ2Decompressor, 6)
