"""Cycles of 60 kB that the garbage collector frees each 20 seconds. No leak."""

import gc

import pace


class Node:
    def __init__(self, size):
        self.me = self
        self.content = bytearray(size)


def main():
    gc.disable()
    pace.ready()
    for step in pace.steps(20):
        Node(60000 + step % 7)
        if step % 400 == 399:
            gc.collect()


main()
