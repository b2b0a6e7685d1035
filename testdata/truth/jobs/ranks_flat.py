"""Three ranks that train at the same time, below one parent. Nothing grows."""

import multiprocessing

import pace


def rank():
    from model import Trainer
    trainer = Trainer()
    for _ in pace.steps(3):
        trainer.step()


def main():
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=rank, daemon=True) for _ in range(3)]
    for process in ranks:
        process.start()
    pace.ready()
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main()
