"""A trainer with 20 workers that wait for work. Nothing grows."""

import subprocess
import sys

import pace
from model import Trainer

WAIT = "import time; content = bytearray(b'x' * (8 << 20)); time.sleep(3600)"


def main():
    workers = [subprocess.Popen([sys.executable, "-c", WAIT]) for _ in range(20)]
    trainer = Trainer()
    for _ in range(20):
        trainer.step()
    pace.ready()
    for _ in pace.steps(4):
        trainer.step()
    return workers


main()
