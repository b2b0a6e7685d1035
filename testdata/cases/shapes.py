"""Pictures of all sizes go through a net on the CPU. oneDNN keeps what it has made for the last 1,024 shapes: memory grows with each
new shape and stops late: pytorch#27971.
"""

import random

import case
import torch

SMALLEST, LARGEST = 16, 96  # pixels

layer = torch.nn.Conv2d(3, 32, 3)


def step():
    height, width = random.randrange(SMALLEST, LARGEST), random.randrange(SMALLEST, LARGEST)
    layer(torch.randn(2, 3, height, width))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    case.run(step, 30)
