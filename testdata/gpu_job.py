"""A training job on a GPU that is not there: its tensors are blocks of caching.cc, built as libc10_cuda.so, whose libraries are a
real libc10 and a stand-in for CUDA's driver. Every second of it is one minute of a real job.

usage: gpu_job.py LIBRARY [leak=KIB] [steps=N] [wait=1]

leak    KiB of the GPU that are kept in each step
steps   steps a second (20)
wait    begins when it reads a line

It prints "ready" and goes on until its input is closed.
"""

import ctypes
import random
import sys
import threading
import time

library = ctypes.CDLL(sys.argv[1])
library.block_malloc.restype = ctypes.c_void_p
settings = {name: float(value) for name, value in (a.split("=", 1) for a in sys.argv[2:])}
history = []


class Tensor:
    def __init__(self, size):
        self.block = ctypes.c_void_p(library.block_malloc(ctypes.c_size_t(int(size))))

    def __del__(self):
        library.block_free(self.block)


def load_model():
    return [Tensor(8 << 20) for _ in range(20)]


def forward():
    return [Tensor(random.choice((1, 2, 4)) << 20) for _ in range(12)]


def remember(size):
    history.append(Tensor(size))  # LEAK


def train_step(step):
    activations = forward()
    if settings.get("leak"):
        remember(settings["leak"] * 1024)
    # A step that came late is made up for: the rate is the same on a busy machine.
    time.sleep(max(0.001, begun + (step + 1) / settings.get("steps", 20) - time.monotonic()))
    del activations


def await_end():
    sys.stdin.read()
    global going
    going = False


going = True
if settings.get("wait"):
    print("ready", flush=True)
    sys.stdin.readline()
model = load_model()
if not settings.get("wait"):
    print("ready", flush=True)
threading.Thread(target=await_end, daemon=True).start()
begun, step = time.monotonic(), 0
while going:
    train_step(step)
    step += 1
