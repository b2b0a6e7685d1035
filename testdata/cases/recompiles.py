"""torch.compile compiles again for each new shape, and Dynamo keeps all that it has made: pytorch#174468."""

import case
import torch
import torch._dynamo

UNLIMITED = 1 << 30

size = 2


@torch.compile(dynamic=False, backend="eager")
def model(batch):
    return (batch.sin() + 1).cos().sum()


def step():
    global size
    size += 1
    return model(torch.ones(size))  # NAMED


if __name__ == "__main__":
    torch._dynamo.config.cache_size_limit = UNLIMITED
    torch._dynamo.config.accumulated_cache_size_limit = UNLIMITED
    torch.set_num_threads(1)
    case.run(step, 5)
