"""Each cycle makes a new process group and never destroys it: torch.distributed keeps all of them, with their threads and sockets:
pytorch#40400.
"""

import case
import torch.distributed as dist


def step():
    dist.new_group([0])  # NAMED


if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    case.run(step, 4)
