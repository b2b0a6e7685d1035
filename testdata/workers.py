"""A trainer whose Dataset is a list of Python objects: each DataLoader worker copies it, page by page, by reading it (pytorch#13246).

Argument: "list" or "array", which holds the same numbers and is not copied.
"""

import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

SAMPLES = 2_000_000


class Numbers(Dataset):
    def __init__(self, kind):
        numbers = [1_000_000 + number for number in range(SAMPLES)]
        self.numbers = numpy.array(numbers) if kind == "array" else numbers

    def __len__(self):
        return SAMPLES

    def __getitem__(self, number):
        return torch.tensor(int(self.numbers[number]) % 10)


torch.set_num_threads(1)
kind = sys.argv[1] if len(sys.argv) > 1 else "list"
loader = DataLoader(Numbers(kind), batch_size=1000, num_workers=2, persistent_workers=True)
while True:
    for batch in loader:
        time.sleep(0.1)
