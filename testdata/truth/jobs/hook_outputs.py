"""A forward hook keeps all outputs of a layer. A leak of 1 MiB a second."""

import pace
from model import Trainer

seen = {"hidden": [], "steps": 0}


def remember(module, inputs, output):
    seen["steps"] += 1
    seen["hidden"].append(output.detach().clone())  # NAMED


def main():
    trainer = Trainer()
    trainer.net[0].register_forward_hook(remember)
    pace.ready()
    for _ in pace.steps(4):
        trainer.step(rows=256)


main()
