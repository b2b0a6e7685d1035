"""DataLoader workers keep each sample: 0.8 MiB a second in each of two. The trainer is flat."""

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self):
        self.decoded = {}

    def __len__(self):
        return 1 << 20

    def __getitem__(self, i):
        if not self.decoded and get_worker_info().id == 0:
            print("ready", os.getpid(), flush=True)
        self.decoded[i] = torch.full((160, 256), float(i))  # NAMED
        time.sleep(0.2)
        return self.decoded[i]


def main():
    for batch in DataLoader(Samples(), batch_size=2, num_workers=2):
        batch.mean()


main()
