"""Writes 1 MiB a second to a file. No leak: the kernel takes its pages back."""

import tempfile

import pace


def main():
    block = bytes(1 << 18)
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        pace.ready()
        for _ in pace.steps(4):
            file.write(block)
            file.flush()


main()
