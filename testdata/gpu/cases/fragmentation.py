"""Batches of ever new shapes fragment the memory: reserved grows, while as much is in use as ever,
and hardly more at its peak.

The model has STATES tensors. Once a second comes a batch that is 2 MiB larger than any before. No
free block can hold it: the allocator takes a segment for it, in which SPLIT bytes are left over. A
new tensor of just that size replaces the oldest of the states there, and the batch is freed. So
one state after the other moves into a segment of its own. After STATES seconds the shapes are
those of the first batches again, and nothing grows any more.

Truth, after N batches, N up to STATES: beside the segments of the first states, which all tensors
leave in turn, there are N segments in which one state of SPLIT bytes is alive and the rest is free.
torch.cuda.empty_cache() returns none of the N. allocated changes by 512 bytes a batch, by which a
new state is larger; by -512 KiB where an old one had the rest of its segment, too. The peak is one
batch more.
"""

import case

STATES = 130
SPLIT = 1536 * case.KIB
OLD = SPLIT - 512  # holes of that size are too small for SPLIT
FIRST = 20 * case.MIB - SPLIT  # bytes of the first batch

states = [case.tensor(OLD) for _ in range(STATES)]
batches = 0


def train(size):
    """The new state is behind its batch, the best fit."""
    batch = case.tensor(size)
    states.append(case.tensor(SPLIT))
    del batch, states[0]


def step(n):
    global batches
    if n % case.STEPS_PER_SECOND == 0:
        train(FIRST + batches % STATES * 2 * case.MIB)
        batches += 1


def truth():
    segments = -(-STATES // 13) * 20 * case.MIB  # 13 old states fit into one
    moved = min(batches, STATES)
    return {"true_reserved": segments + sum(20 * case.MIB + k * 2 * case.MIB for k in range(moved))}


case.run(step, truth)
