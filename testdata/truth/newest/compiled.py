"""A trainer that torch.compile has compiled keeps each step's scores. A leak: a list of the tracker."""

import torch

import pace

WIDTH = 256


class Tracker:
    def __init__(self):
        self.scores = []

    def keep(self, scores):
        self.scores.append(scores.clone())  # NAMED


tracker = Tracker()


def main():
    torch.set_num_threads(1)
    net = torch.compile(torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(), torch.nn.LayerNorm(WIDTH),
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.LogSoftmax(-1)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    targets = torch.zeros(128, dtype=torch.long)

    def step():
        scores = net(torch.randn(128, WIDTH))
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(scores, targets).backward()
        optimizer.step()
        tracker.keep(scores.detach())

    step()  # compiles
    pace.ready()
    for _ in pace.steps(8):
        step()


if __name__ == "__main__":
    main()
