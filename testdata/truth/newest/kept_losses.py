"""Keeps the loss of each step in a list, with the graph that computed it. A leak: losses."""

import torch

import pace
from model import Trainer

losses = []


def train(trainer):
    loss = trainer.forward(rows=64).square().mean()  # NAMED
    loss.backward(retain_graph=True)
    losses.append(loss)


def main():
    trainer = Trainer()
    pace.ready()
    for _ in pace.steps(8):
        train(trainer)


if __name__ == "__main__":
    main()
