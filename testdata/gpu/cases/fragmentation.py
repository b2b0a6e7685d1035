"""Batches of ever new shapes fragment the memory: reserved grows, while as much is in use as ever, and hardly more at its peak.

The model has STATES tensors. Once a second comes a batch that is 2 MiB larger than any before. No free block can hold it: the
allocator takes a segment for it, in which SPLIT bytes are left over. A new tensor of just that size replaces the oldest of the
states there, and the batch is freed. So one state after the other moves into a segment of its own. After STATES seconds the
shapes are those of the first batches again, and nothing grows any more.

Truth, after N batches, N up to STATES: each of N segments has one state of SPLIT bytes and is free otherwise, so that
torch.cuda.empty_cache() returns none of them. allocated has grown by 512 bytes for each, as the new states are larger than the
old ones by that; less where an old one had a larger block than it asked for. The peak is a batch more than that.
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
