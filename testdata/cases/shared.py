"""A loop keeps tensors in shared memory, as it gets them from workers through a queue: each is a file of /dev/shm and a descriptor."""

import case
import torch

ELEMENTS = 256 << 10

kept = []


def step():
    kept.append(torch.ones(ELEMENTS).share_memory_())  # NAMED


if __name__ == "__main__":
    torch.set_num_threads(1)
    case.run(step, 2)
