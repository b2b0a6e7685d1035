"""A training job in small, whose memory does what it is ordered. Every second of it is one minute of a real job.

usage: job.py [warmup=SECONDS] [fill=MIB] [leak=KIB] [spike=MIB] [every=SECONDS] [workers=N] [children=N] [steps=N]
              [epoch=SECONDS] [until=SECONDS] [wait=1]

warmup, fill   a first pass over the data keeps fill MiB within so many seconds; it prints the time of its
               end in seconds since the epoch, and "warm"
leak           KiB that are kept in each step
spike, every   a validation takes so much for half a second, every so often
workers        processes that are forked and hold still
children       processes that are forked one a step, allocate, and soon exit; it prints "childless" when all have
steps          steps a second (20)
epoch          prints "allocscope: epoch" that often
until          exits by itself after so long
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


def train_step(done):
    batch = [touch(256 << 10) for _ in range(4)]
    del batch
    if settings.get("leak"):
        remember(settings["leak"] * 1024)


def validate():
    held = touch(settings["spike"] * (1 << 20))
    time.sleep(0.5)
    del held


def start_workers():
    for _ in range(int(settings.get("workers", 0))):
        if os.fork() == 0:
            time.sleep(3600)
            os._exit(0)


def start_child(step):
    """The child of a step lives for two steps, and is waited for after four."""
    count = settings.get("children", 0)
    if step < count and os.fork() == 0:
        keep = touch(SIZE)
        time.sleep(2 / settings.get("steps", 20))
        os._exit(len(keep) != SIZE)
    if 4 <= step < count + 4:
        os.wait()
    if step + 1 == count + 4:
        print("childless", flush=True)


def main():
    start_workers()
    print("ready", flush=True)
    if settings.get("wait"):
        sys.stdin.readline()
    threading.Thread(target=lambda: (sys.stdin.read(), os.killpg(0, 9)), daemon=True).start()
    began = time.monotonic()
    pause, warmup = 1 / settings.get("steps", 20), settings.get("warmup", 0)
    validated = epoch = step = 0
    is_warm = not warmup
    while True:
        now = time.monotonic() - began
        fill_cache(now / warmup if warmup else 1)
        if not is_warm and now >= warmup:
            is_warm = True
            print(time.time(), "warm", sep="\n", flush=True)
        train_step(step)
        if settings.get("children"):
            start_child(step)
        step += 1
        if settings.get("every") and now > (validated + 1) * settings["every"]:
            validated += 1
            validate()
        if settings.get("epoch") and now > (epoch + 1) * settings["epoch"]:
            epoch += 1
            print("allocscope: epoch", epoch, flush=True)
        if settings.get("until") and now > settings["until"]:
            os._exit(0)
        time.sleep(max(0, began + step * pause - time.monotonic()))


if __name__ == "__main__":
    os.setpgid(0, 0)
    os.nice(-20)  # what it does to its memory, it does at that time on a busy machine, too
    main()
