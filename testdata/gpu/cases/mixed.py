"""Memory of all kinds that the caching allocator knows, beside each other: the default pool on two
streams, small and large blocks, torch.cuda.MemPool, and the pool of a CUDA graph.

Before each step there are KEPT tensors of odd sizes. A step allocates RECORDED bytes, which another
stream uses: freed, they wait for it (active_pending_free), until the next allocation finds that the
stream is done.

Truth: active is RECORDED more than allocated.
"""

import torch

import case

KEPT = 60
RECORDED = 6 * case.MIB
ODD = 1000  # bytes, which are rounded up to 1024

streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
small, large = [], []
pool = torch.cuda.MemPool()
graph = torch.cuda.CUDAGraph()
pooled = []


def fill(stream):
    """Leaves holes between the blocks of a stream."""
    with torch.cuda.stream(stream):
        temporary = []
        for n in range(KEPT // 2):
            small.append(case.tensor(ODD * (n + 1)))
            large.append(case.tensor(case.MIB + ODD * n))
            temporary += [case.tensor(3 * case.MIB), case.tensor(ODD)]


def make_pools():
    with torch.cuda.use_mem_pool(pool):
        pooled.append(case.tensor(5 * case.MIB))
        case.tensor(2 * case.MIB)
    with torch.cuda.graph(graph):
        case.tensor(3 * case.MIB)
        pooled.append(case.tensor(case.MIB // 2))


for stream in streams:
    fill(stream)
make_pools()


def step(n):
    used = case.tensor(RECORDED)
    used.record_stream(streams[1])


def truth():
    stats = torch.cuda.memory_stats()
    return {"true_active": stats["allocated_bytes.all.current"] + RECORDED}


case.run(step, truth)
