"""A spike leaves a cache: SPIKE tensors of SIZE bytes are alive for a second, SECONDS after the
start, and then freed.

Truth: allocated is SIZE, the tensor of weights; reserved is 2 * SIZE before the spike and (1 +
SPIKE) * SIZE from then on. From the end of the spike on, torch.cuda.empty_cache() would return all
but SIZE. Each step uses one free segment.
"""

import case

SPIKE = 50  # tensors
SIZE = 20 * case.MIB  # each is a segment
SECONDS = 10

weights = case.tensor(SIZE)
validation = []
reached = False


def step(n):
    global reached
    second = n // case.STEPS_PER_SECOND
    if second == SECONDS and not validation:
        reached = True
        validation.extend(case.tensor(SIZE) for _ in range(SPIKE))
    if second > SECONDS:
        validation.clear()
    if not validation:
        case.tensor(SIZE)


def truth():
    return {
        "true_allocated": (1 + len(validation)) * SIZE,
        "true_reserved": (1 + SPIKE if reached else 2) * SIZE,
    }


case.run(step, truth)
