"""Cycles of objects: of nodes, and of lists with picklers, whose memo gc does not see until 3.12.

It prints the addresses of one object of each, and collects the garbage for a line of input.
"""

import gc
import io
import pickle
import sys

gc.disable()


class Node:
    pass


def nodes():
    node = Node()
    node.me = node
    return str(id(node))


def picklers():
    kept = []
    pickler = pickle.Pickler(io.BytesIO())
    pickler.dump(kept)
    kept.append(pickler)
    return str(id(kept))


for make in nodes, picklers:
    print(make.__name__, "cycles", *[make() for _ in range(400)][-16:])  # older words lead to the first ones
print("kinds end", flush=True)
for _ in sys.stdin:
    for _ in range(3):
        gc.collect()
    print("collected", flush=True)
