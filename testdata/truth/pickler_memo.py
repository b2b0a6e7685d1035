"""A Pickler in a list that it has pickled is a cycle that gc does not see (bpo-41422)."""

import io
import pickle

import paced


def leaking(back=True):
    kept = []
    pickler = pickle.Pickler(io.BytesIO())  # NAMED
    pickler.dump(kept)
    if back:
        kept.append(pickler)


paced.run(leaking, lambda: leaking(False), 60)
