"""A DataLoader with two workers, started as the argument says, for two epochs."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        time.sleep(0.02)  # as long as it takes to see a worker
        return torch.full((1000,), float(i))


if __name__ == "__main__":
    loader = DataLoader(
        Numbers(), 16, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    for epoch in range(2):
        print(epoch, sum(batch.sum().item() for batch in loader))
