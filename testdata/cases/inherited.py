"""DataLoader workers read a list of Python objects that their parent has made. To read an object is to write its reference count, so
that each worker gets a copy of the page: pytorch#13246.
"""

import itertools

import case
from torch.utils.data import DataLoader, Dataset

RECORDS = 3_000_000
BATCH, BATCHES_PER_SECOND, WORKERS = 64, 10, 2


class Records(Dataset):
    def __init__(self):
        self.names = [f"image-{number:08d}.jpg" for number in range(RECORDS)]

    def __len__(self):
        return RECORDS

    def __getitem__(self, number):
        return len(self.names[number])


def main():
    loader = DataLoader(Records(), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    case.run(lambda: next(batches), BATCHES_PER_SECOND)


if __name__ == "__main__":
    main()
