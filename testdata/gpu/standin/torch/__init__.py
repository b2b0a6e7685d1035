"""Replaces PyTorch with CUDA where there is no GPU, for trainer.py, which sees no difference (but --compile is not there): nothing is
calculated, and tensors are blocks of blocks.py's caching allocator, whose segments are those of a libcuda.so.1 built from libcuda.c, and batches are in memory
that this has pinned.

The variable STANDIN has the paths of libc10.so, which receives the blocks, of that libcuda.so.1, which the first call of CUDA
loads, and of a libc10_cuda.so that does nothing. In the file that NVML_STUB names, nvml.c finds what the driver counts, with a
context of CONTEXT bytes, whenever the GPU is waited for."""

import contextlib
import ctypes
import os
import sys
import time
from ctypes import c_char_p, c_size_t, c_uint64, c_void_p

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
import blocks  # noqa: E402

from . import pin_memory  # noqa: E402

CONTEXT = 300 << 20
STEP = 0.002  # seconds
uint8 = int64 = None
libc10, libcuda, libc10_cuda = os.environ["STANDIN"].split(":")
caching = "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ
allocator = blocks.allocator("0")

with contextlib.redirect_stdout(None):
    blocks.order_load(libc10)
ctypes.CDLL(libc10_cuda)


class device:
    def __init__(self, name):
        self.type = name.partition(":")[0]


class Tensor:
    def __init__(self, size):
        self.block = self.address = None
        if caching:
            self.block = allocator.malloc(size)
        else:
            self.address = c_uint64()
            assert allocator.driver.cuMemAlloc_v2(ctypes.byref(self.address), c_size_t(size)) == 0

    def __del__(self):
        if self.block:
            allocator.free(*self.block)
        elif self.address:
            allocator.driver.cuMemFree_v2(self.address)

    def __getitem__(self, _):
        return self

    def flatten(self, *_):
        return self

    def backward(self):
        Tensor(70_000)
        time.sleep(STEP)

    def item(self):
        return 0.5


class Batch:
    """Memory of the host."""

    def to(self, _, non_blocking):
        return Tensor(33_000)


def zeros(size, dtype, device):
    return Tensor(size)


def manual_seed(_):
    pass


no_grad = contextlib.nullcontext


class Module:
    def __init__(self, *_, **__):
        pass

    def to(self, _):
        self.weights = [Tensor(size) for size in (3_000_000, 512, 1_500, 12_000_000)]
        return self

    def parameters(self):
        return self.weights

    def __call__(self, *inputs):
        return self.forward(*inputs)

    def forward(self, _):
        return Tensor(2_100_000)


class nn:
    Module = Embedding = Linear = TransformerEncoderLayer = TransformerEncoder = Module

    class functional:
        def cross_entropy(scores, tokens):
            return Tensor(4)


class optim:
    class AdamW:
        def __init__(self, weights, lr):
            self.weights, self.state = weights, None

        def zero_grad(self):
            pass

        def step(self):
            self.state = self.state or [Tensor(8_000_000) for _ in self.weights]


class utils:
    class data:
        class DataLoader:
            def __init__(self, data, batch_size, num_workers, persistent_workers, pin_memory):
                self.batches = len(data) // batch_size

            def __iter__(self):
                for _ in range(self.batches):
                    cuda.pin(10_000)
                    yield Batch()


def on_device(driver):
    """What libcuda.c counts of cuMemAlloc_v2."""
    driver.stub_kind.restype, driver.stub_bytes.restype = c_char_p, c_size_t
    kind = 0
    while driver.stub_kind(kind) != b"device":
        kind += 1
    return driver.stub_bytes(kind)


class cuda:
    pinned = []

    def set_device(_):
        pass

    def init():
        blocks.order_driver(libcuda)

    def pin(size):
        if len(cuda.pinned) < 3:  # the others take what these have
            address = c_void_p()
            pin_memory.pin(allocator.driver.cuMemHostAlloc, ctypes.byref(address), c_size_t(size), 0)
            cuda.pinned.append(size)

    def synchronize():
        used = CONTEXT + on_device(allocator.driver)
        if file := os.environ.get("NVML_STUB"):
            with open(file + ".part", "w") as answers:
                print(f"count 1\nmemory.0 {used + 5000} {80 << 30}\ncompute.0 1:77 {os.getpid()}:{used}", file=answers)
            os.rename(file + ".part", file)

    def memory_allocated(_):
        return allocator.allocated

    def memory_reserved(_):
        return allocator.reserved

    def memory_stats(_):
        return {"segment.all.current": len(allocator.segments)}

    def mem_get_info(_):
        return 40 << 30, 80 << 30

    def host_memory_stats():
        return {"allocated_bytes.current": sum(cuda.pinned)}

    empty_cache = allocator.empty
