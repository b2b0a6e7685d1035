"""A list pins the segments of the caching allocator: it holds one small tensor in each, and the
rest of the segment is free.

Once a second, temporary tensors fill the free memory and one new segment of SEGMENT bytes. One of
those in the new segment stays, in embeddings.kept, and all others are freed. After SEGMENTS
seconds nothing grows any more.

Truth, with N tensors in embeddings.kept: allocated is N * KEPT, and reserved N * SEGMENT.
torch.cuda.empty_cache() returns nothing, and dropping embeddings.kept makes all of reserved free.
"""

import case

SEGMENTS = 100
SEGMENT = 20 * case.MIB  # the allocator takes that much for tensors of 1 to 10 MiB
KEPT = 2 * case.MIB
IN_SEGMENT = SEGMENT // KEPT


class Embeddings:
    def __init__(self):
        self.kept = []

    def add(self):
        before = len(self.kept) * (IN_SEGMENT - 1)  # free places in the segments
        batch = [case.tensor(KEPT) for _ in range(before + IN_SEGMENT)]
        self.kept.append(batch[before])


embeddings = Embeddings()


def step(n):
    if n % case.STEPS_PER_SECOND == 0 and len(embeddings.kept) < SEGMENTS:
        embeddings.add()
    case.tensor(KEPT)


def truth():
    kept = len(embeddings.kept)
    return {"true_allocated": kept * KEPT, "true_reserved": kept * SEGMENT}


case.run(step, truth)
