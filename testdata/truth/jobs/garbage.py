"""Cycles of objects, with the garbage collector off. A leak of 1 MiB a second."""

import gc

import pace


class Node:
    def __init__(self, size):
        self.me = self
        self.content = bytearray(size)  # NAMED


def main():
    gc.disable()
    pace.ready()
    for step in pace.steps(20):
        Node(52000 + step % 7)


main()
