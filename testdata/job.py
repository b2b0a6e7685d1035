"""A training job in small, whose memory does what it is ordered. Every second of it is one minute of a real job.

usage: job.py [warmup=SECONDS] [fill=MIB] [leak=KIB] [workers=N] [steps=N] [wait=1]

warmup, fill   a first pass over the data keeps fill MiB within so many seconds
leak           KiB that are kept in each step
workers        processes that are forked and hold still
steps          steps a second (20)
wait           begins when it reads a line

It prints "ready" once its workers run, and goes on until its input is closed.
"""

import os
import sys
import threading
import time

SIZE = 64 << 10  # of one piece of what is kept

settings = {name: float(value) for name, value in (a.split("=", 1) for a in sys.argv[1:])}
kept, cache = [], []


def touch(size):
    """Memory that is resident: bytes of a value other than zero are written."""
    return bytearray(b"x") * int(size)


def remember(size):
    kept.append(touch(size))  # LEAK


def fill_cache(share):
    wanted = int(settings.get("fill", 0) * (1 << 20) * min(1.0, share))
    while len(cache) * SIZE < wanted:
        cache.append(touch(SIZE))


def train_step():
    batch = [touch(256 << 10) for _ in range(4)]
    del batch
    if settings.get("leak"):
        remember(settings["leak"] * 1024)


def start_workers():
    for _ in range(int(settings.get("workers", 0))):
        if os.fork() == 0:
            time.sleep(3600)
            os._exit(0)


def main():
    start_workers()
    print("ready", flush=True)
    if settings.get("wait"):
        sys.stdin.readline()
    threading.Thread(target=lambda: (sys.stdin.read(), os.killpg(0, 9)), daemon=True).start()
    began = time.monotonic()
    pause, warmup = 1 / settings.get("steps", 20), settings.get("warmup", 0)
    step = 0
    while True:
        now = time.monotonic() - began
        fill_cache(now / warmup if warmup else 1)
        train_step()
        step += 1
        time.sleep(max(0, began + step * pause - time.monotonic()))


if __name__ == "__main__":
    os.setpgid(0, 0)
    os.nice(-20)  # what it does to its memory, it does at that time on a busy machine, too
    main()
