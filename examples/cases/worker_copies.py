"""Two DataLoader workers read annotations: a list of dicts; --fixed: one buffer of pickled ones."""

import pickle
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

FIXED = "--fixed" in sys.argv
SAMPLES, BATCH, WORKERS, BATCHES_PER_SECOND = 400_000, 64, 2, 5


class Annotations(Dataset):
    def __init__(self):
        self.infos = [{"token": f"sample-{i}", "box": [i, i + 0.5]} for i in range(SAMPLES)]
        if FIXED:
            pickled = [pickle.dumps(info) for info in self.infos]
            self.ends = numpy.cumsum([len(one) for one in pickled])
            self.buffer = numpy.frombuffer(b"".join(pickled), dtype=numpy.uint8)
            del self.infos

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if FIXED:
            begin = self.ends[index - 1] if index else 0
            return torch.tensor(pickle.loads(self.buffer[begin : self.ends[index]])["box"])
        return torch.tensor(self.infos[index]["box"])


torch.set_num_threads(1)
data = Annotations()
loader = DataLoader(data, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
while True:
    for _ in loader:
        time.sleep(1 / BATCHES_PER_SECOND)
