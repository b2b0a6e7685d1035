"""Leaks in two places, of which the first leaks twice as much as the second.

usage: two_leaks.py functions|main|evaluate

The places are two functions that main calls, two lines of main, or two lines of evaluate. It prints "ready", and goes on until its
input is closed.
"""

import sys
import threading

SIZE = 32 << 10
kept = []


def images():
    kept.append(bytearray(b"x") * (2 * SIZE))  # images


def arrays():
    kept.append(bytearray(b"x") * SIZE)  # arrays


def evaluate():
    kept.append(bytearray(b"x") * (2 * SIZE))  # evaluate 1
    kept.append(bytearray(b"x") * SIZE)  # evaluate 2


def main():
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
    print("ready", flush=True)
    while not ended.wait(0.04):
        if sys.argv[1] == "functions":
            images()
            arrays()
        elif sys.argv[1] == "evaluate":
            evaluate()
        else:
            kept.append(bytearray(b"x") * (2 * SIZE))  # main 1
            kept.append(bytearray(b"x") * SIZE)  # main 2


ended = threading.Event()
if __name__ == "__main__":
    main()
