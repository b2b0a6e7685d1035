#!/usr/bin/env python3
"""Calls libc10's c10::reportMemoryUsageToProfiler() as PyTorch's native CUDA allocator does, without a GPU: for each block that
it gives and takes back, with what is allocated and reserved of the device after it. Of torch it needs libc10.so alone.

It prints "ready", executes one order a line, prints what the order asks for, then "done", and exits at the end of its input. With the
path of libc10.so as its argument it loads that before.

load PATH                loads libc10.so; prints "hook NAME", the mangled name that it found
driver PATH              loads libcuda.so.1: segments are from then on cuMemAlloc_v2's, and cuMemFree_v2 frees them
hold WHO N SIZE DEVICE   WHO is "weights" or "activations": hold_weights() keeps N blocks of SIZE bytes of that device, or
                         hold_activations(), through its inner function forward(), does
free WHO N DEVICE        the N oldest of those are freed
elsewhere WHO N DEVICE   so they are, in another thread
churn N SIZE DEVICE      churn_here() allocates and frees N times
threads T N SIZE DEVICE  T threads at once do "hold weights N SIZE DEVICE"
cpu N SIZE               cpu_here() reports N blocks of the processor's memory, and that each second one of them is freed
empty DEVICE             gives segments that hold no block back, as torch.cuda.empty_cache() does, which reports nothing
totals                   "DEVICE BLOCKS BYTES ALLOCATED RESERVED" for each device that had blocks: how many are held and their
                         bytes, which are counted again, and what the allocator has allocated and reserved
driver_totals            "KIND OBJECTS BYTES" for each kind that libcuda.so.1, if built from libcuda.c, knows, as it counts
reported                 "CALLS BYTES SIZE ALLOCATED RESERVED TYPE INDEX" as a library built from c10.cc saw it: how often its hook
                         was called, the bytes of all CUDA devices together, and what the last call said

As there, a block is a multiple of 512 bytes; segments are 2 MiB for blocks up to 1 MiB, 20 MiB for those under 10 MiB, and
otherwise the block's size rounded up to 2 MiB; what is freed serves the next block of the same size, the last one first."""

import ctypes
import sys
import threading
from ctypes import c_char_p, c_int8, c_int64, c_long, c_size_t, c_uint64, c_ulong, c_void_p

MIB = 1 << 20
CPU, CUDA = 0, 1  # c10::DeviceType
HOOK = "_ZN3c1027reportMemoryUsageToProfilerEPv"
TOTALS = ("lmmNS_6DeviceE", "lllNS_6DeviceE")  # of 2.x, of 1.13
WITHOUT_TOTALS = "lNS_6DeviceE"


class Device(ctypes.Structure):
    """c10::Device"""

    _fields_ = [("type", c_int8), ("index", c_int8)]


def report(pointer, size, allocated, reserved, device):
    """Calls the hook; order_load() sets it."""
    raise AssertionError("no libc10 is loaded")


def rounded(n, unit):
    return -(-n // unit) * unit


class Segment:
    def __init__(self, address, size):
        self.address, self.size, self.used, self.blocks = address, size, 0, 0


class Allocator:
    """The caching allocator of one device."""

    driver = None

    def __init__(self, index):
        self.device, self.lock = Device(CUDA, index), threading.Lock()
        self.allocated = self.reserved = 0
        self.segments, self.cached = [], {}
        self.next_address = (index + 1) << 44
        self.held = {"weights": [], "activations": []}

    def segment_of(self, size):
        """Gives a segment with so much room."""
        length = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else rounded(size, 2 * MIB)
        for segment in self.segments:
            if segment.size == length and length - segment.used >= size:
                return segment
        address = c_uint64(self.next_address)
        if self.driver:
            assert self.driver.cuMemAlloc_v2(ctypes.byref(address), c_size_t(length)) == 0
        self.next_address += length
        self.segments.append(Segment(address.value, length))
        self.reserved += length
        return self.segments[-1]

    def malloc(self, size):
        size = rounded(size, 512)
        with self.lock:
            if self.cached.get(size):
                address, segment = self.cached[size].pop()
            else:
                segment = self.segment_of(size)
                address = segment.address + segment.used
                segment.used += size
            segment.blocks += 1
            self.allocated += size
            report(address, size, self.allocated, self.reserved, self.device)
        return address, size, segment

    def free(self, address, size, segment):
        with self.lock:
            segment.blocks -= 1
            self.allocated -= size
            self.cached.setdefault(size, []).append((address, segment))
            report(address, -size, self.allocated, self.reserved, self.device)

    def empty(self):
        for segment in [s for s in self.segments if not s.blocks]:
            self.segments.remove(segment)
            self.reserved -= segment.size
            if self.driver:
                assert self.driver.cuMemFree_v2(c_uint64(segment.address)) == 0
        for size, blocks in self.cached.items():
            self.cached[size] = [(address, segment) for address, segment in blocks if segment in self.segments]


allocators = {}


def allocator(index):
    if index not in allocators:
        allocators[index] = Allocator(int(index))
    return allocators[index]


def order_load(path):
    global report, received
    library = ctypes.CDLL(path)
    name, *others = [HOOK + end for end in (*TOTALS, WITHOUT_TOTALS) if hasattr(library, HOOK + end)]
    hook = library[name]
    hook.restype = None
    if name == HOOK + WITHOUT_TOTALS:
        hook.argtypes = [c_void_p, c_int64, Device]

        def report(pointer, size, allocated, reserved, device):
            hook(pointer, size, device)

    else:
        hook.argtypes = [c_void_p, c_int64, c_size_t, c_size_t, Device]
        report = hook
    assert not others, others
    received = (c_int64 * 7).in_dll(library, "received") if hasattr(library, "received") else None
    print("hook", name)


def order_driver(path):
    Allocator.driver = ctypes.CDLL(path)


def hold_weights(of, n, size):
    for _ in range(n):
        of.held["weights"].append(of.malloc(size))


def hold_activations(of, n, size):
    def forward():
        of.held["activations"].append(of.malloc(size))

    for _ in range(n):
        forward()


def order_hold(who, n, size, device):
    globals()["hold_" + who](allocator(device), int(n), int(size))


def order_free(who, n, device):
    of = allocator(device)
    freed, of.held[who] = of.held[who][: int(n)], of.held[who][int(n) :]
    assert len(freed) == int(n), who
    for block in freed:
        of.free(*block)


def in_threads(n, target, *arguments):
    running = [threading.Thread(target=target, args=arguments) for _ in range(n)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def order_elsewhere(who, n, device):
    in_threads(1, order_free, who, n, device)


def order_threads(threads, n, size, device):
    of = allocator(device)
    in_threads(int(threads), hold_weights, of, int(n), int(size))


def order_churn(n, size, device):
    def churn_here():
        of.free(*of.malloc(int(size)))

    of = allocator(device)
    for _ in range(int(n)):
        churn_here()


def order_cpu(n, size):
    """The allocator of the processor's memory knows no reserve, and reports no index of a device (-1)."""

    def cpu_here(address, change):
        nonlocal allocated
        allocated += change
        report(address, change, allocated, 0, Device(CPU, -1))

    allocated = 0
    for i in range(int(n)):
        cpu_here((1 << 32) + i * int(size), int(size))
        if i % 2:
            cpu_here((1 << 32) + i * int(size), -int(size))


def order_empty(device):
    allocator(device).empty()


def order_totals():
    for index, of in sorted(allocators.items()):
        blocks = [size for held in of.held.values() for _, size, _ in held]
        print(index, len(blocks), sum(blocks), of.allocated, of.reserved)


def order_driver_totals():
    driver = Allocator.driver
    driver.stub_kind.restype, driver.stub_objects.restype, driver.stub_bytes.restype = c_char_p, c_long, c_ulong
    kind = 0
    while name := driver.stub_kind(kind):
        print(name.decode(), driver.stub_objects(kind), driver.stub_bytes(kind))
        kind += 1


def order_reported():
    print(*received)


def main():
    if len(sys.argv) > 1:
        order_load(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        globals()["order_" + name](*arguments)
        print("done", flush=True)


if __name__ == "__main__":
    main()
