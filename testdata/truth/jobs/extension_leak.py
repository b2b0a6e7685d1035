"""Calls a C extension that loses 1 kB in each call. A leak of 1 MiB a second."""

import ctypes
import sys

import pace


def main():
    extension = ctypes.CDLL(sys.argv[1])
    pace.ready()
    for step in pace.steps(20):
        for request in range(50):
            extension.session_open(request)


main()
