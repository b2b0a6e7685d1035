"""An Unpickler in a list that it has made is a cycle that gc does not see (bpo-41422)."""

import io
import pickle

import paced


def leaking(back=True):
    unpickler = pickle.Unpickler(io.BytesIO(b"(lp0\n."))  # NAMED
    made = unpickler.load()
    if back:
        made.append(unpickler)


paced.run(leaking, lambda: leaking(False), 30)
