"""Two ranks reduce tensors over gloo, and keep what each call returns, with its tensors: pytorch#116923."""

import os

import case
import torch
import torch.distributed as dist

ELEMENTS = 2_000

works = []


def step():
    works.append(dist.all_reduce(torch.ones(ELEMENTS), async_op=True))  # NAMED
    works[-1].wait()


if __name__ == "__main__":
    store = os.path.abspath(f"store{os.getpid()}")
    rank = 0 if os.fork() else 1
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    case.run(step, 100)
