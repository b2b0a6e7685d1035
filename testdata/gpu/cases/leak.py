"""Tensors stay in a list: 10 MiB/min.

Each step frees a temporary tensor. Every 75th step keeps one more tensor of KEPT bytes in
history.losses.

Truth, with N tensors in history.losses: allocated is N * KEPT, and reserved that and up to 2 MiB,
the segment of the pool for small tensors, and one of 20 MiB, in which the temporary tensors are.
"""

import case

KEPT = 64 * case.KIB
EVERY = 75  # steps: 160 tensors a minute
TEMPORARY = 4 * case.MIB


class History:
    def __init__(self):
        self.losses = []

    def remember(self):
        self.losses.append(case.tensor(KEPT))


history = History()


def step(n):
    case.tensor(TEMPORARY)
    if n % EVERY == 0:
        history.remember()


def truth():
    kept = len(history.losses) * KEPT
    segments = -(-kept // (2 * case.MIB))
    return {"true_allocated": kept, "true_reserved": segments * 2 * case.MIB + 20 * case.MIB}


case.run(step, truth)
