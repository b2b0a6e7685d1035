"""Files have buffers that had other contents before: a list of the items. The references are lost."""
# KEPT BY: nothing
import io
import os

import case

files = []


def fill(thing):
    """Leaves the address of a thing in memory of the sizes of buffers."""
    lists = [[thing] * words for words in (1024, 2048, 8192, 16384, 100) for again in range(4)]
    tuples = [(thing,) * words for words in (1024, 16, 40, 60, 8192) for again in range(4)]
    del lists, tuples


for step in case.steps(200):
    fill(case.lost(case.item()))
    if step < 200:
        files.append(open(os.devnull, "rb"))
        files.append(open(os.devnull, "wb"))
        files.append(io.BufferedRWPair(io.BytesIO(), io.BytesIO()))
