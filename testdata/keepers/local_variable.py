"""A local variable of a running function keeps the items."""
# KEPT BY: local losses of train() (local_variable.py)
# CONTAINER: list
import case


def train(epochs):
    losses = []
    for step in case.steps():
        losses.append(case.item())


def main():
    train(epochs=3)


main()
