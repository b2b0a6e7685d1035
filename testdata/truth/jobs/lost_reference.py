"""C code takes a reference to each answer that it does not give back. A leak of 1 MiB a second."""

import ctypes

import pace

take = ctypes.pythonapi.Py_IncRef
take.argtypes = [ctypes.py_object]
take.restype = None


def answer(step):
    text = bytes(10000 + step % 7)  # NAMED
    take(text)


def main():
    pace.ready()
    for step in pace.steps(20):
        for _ in range(5):
            answer(step)


main()
