"""Threads that come and go make tensors and free them; each returns a small one. More and more threads run at once, up to a limit:
malloc has an arena for each, and keeps what was freed in it: pytorch#117429.
"""

import collections
import random
from concurrent.futures import ThreadPoolExecutor

import case
import torch

TENSORS, SMALLEST, LARGEST = 200, 5_000, 25_000  # elements
THREADS, ROUNDS_PER_THREAD = 12, 3
KEPT = 64  # results

results = collections.deque(maxlen=KEPT)
rounds = 0


def work(_):
    made = [torch.zeros(random.randrange(SMALLEST, LARGEST)) for _ in range(TENSORS)]
    return torch.stack([one[0] for one in made]).mean()


def step():
    global rounds
    threads = min(1 + rounds // ROUNDS_PER_THREAD, THREADS)
    with ThreadPoolExecutor(threads) as pool:
        results.extend(pool.map(work, range(threads)))
    rounds += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    case.run(step, 1)
