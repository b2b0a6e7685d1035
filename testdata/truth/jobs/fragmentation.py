"""Keeps 1 kB of each message, each a little longer than all before: malloc keeps the rest."""

import pace

headers = []


def receive(step):
    message = bytearray(48000 + 16 * step)  # NAMED
    del message[1000:]
    headers.append(message)


def main():
    pace.ready()
    for step in pace.steps(15):
        receive(step)


main()
