#!/usr/bin/env python3
"""Allocates through libcuda.so.1 from Python, on command: prints "ready", executes one order a line, prints what the order asks for,
then "done", and exits at the end of its input. With a path as its argument it loads that library before.

load PATH            loads libcuda.so.1
hold API N SIZE      hold_API() has its inner function one() allocate N objects of SIZE bytes, and they stay
free API N           the N oldest of that API are freed
churn API N SIZE     churn_here() has hold_API() allocate and frees at once, N times
threads T API N SIZE T threads at once do "hold API N SIZE", from thread_here()
fail API N           hold_API() asks N times for 1 << 50 bytes, which fails
totals               "KIND OBJECTS BYTES" for each kind that the library knows, as the library counts

The APIs are those of cuda.c that are here a function hold_API(), and SIZE is what it is there.
"""

import ctypes
import sys
import threading
from ctypes import byref, c_int, c_size_t, c_uint64, c_ulonglong, c_void_p

TOO_MUCH = 1 << 50
cuda = None
held = {}  # by API, oldest first


class Prop(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = [("type", c_int), ("handle_types", c_int), ("location_type", c_int), ("location_id", c_int)]
    _fields_ += [("metadata", c_void_p), ("flags", c_uint64)]


class Refused(Exception):
    pass


def check(result, address):
    if result:
        raise Refused(result)
    return address.value


def hold_malloc(size):
    def one(address):
        return check(cuda.cuMemAlloc_v2(byref(address), c_size_t(size)), address)

    return one(c_uint64())


def hold_pitch(size):
    def one(address):
        return check(cuda.cuMemAllocPitch_v2(byref(address), byref(c_size_t()), c_size_t(size), c_size_t(3), 4), address)

    return one(c_uint64())


def hold_managed(size):
    def one(address):
        return check(cuda.cuMemAllocManaged(byref(address), c_size_t(size), 1), address)

    return one(c_uint64())


def hold_async(size):
    def one(address):
        return check(cuda.cuMemAllocAsync(byref(address), c_size_t(size), None), address)

    return one(c_uint64())


def hold_pool(size):
    def one(address):
        return check(cuda.cuMemAllocFromPoolAsync(byref(address), c_size_t(size), None, None), address)

    return one(c_uint64())


def hold_create(size):
    def one(handle):
        prop = Prop(type=1, location_type=1)
        return check(cuda.cuMemCreate(byref(handle), c_size_t(size), byref(prop), c_ulonglong(0)), handle)

    return one(c_uint64())


def hold_hostalloc(size):
    def one(pointer):
        return check(cuda.cuMemHostAlloc(byref(pointer), c_size_t(size), 0), pointer)

    return one(c_void_p())


def hold_allochost(size):
    def one(pointer):
        return check(cuda.cuMemAllocHost_v2(byref(pointer), c_size_t(size)), pointer)

    return one(c_void_p())


def free(api, address):
    """Frees what hold_API() gave."""
    if api in ("async", "pool"):
        result = cuda.cuMemFreeAsync(c_uint64(address), None)
    elif api == "create":
        result = cuda.cuMemRelease(c_uint64(address))
    elif api in ("hostalloc", "allochost"):
        result = cuda.cuMemFreeHost(c_void_p(address))
    else:
        result = cuda.cuMemFree_v2(c_uint64(address))
    assert result == 0, (api, result)


def order_load(path):
    global cuda
    cuda = ctypes.CDLL(path)
    cuda.stub_kind.restype = ctypes.c_char_p
    cuda.stub_objects.restype = ctypes.c_long
    cuda.stub_bytes.restype = ctypes.c_ulong
    assert cuda.cuInit(0) == 0


def order_hold(api, n, size):
    hold = globals()["hold_" + api]
    for _ in range(int(n)):
        held.setdefault(api, []).append(hold(int(size)))


def order_free(api, n):
    freed, held[api] = held[api][: int(n)], held[api][int(n) :]
    assert len(freed) == int(n), api
    for address in freed:
        free(api, address)


def order_churn(api, n, size):
    def churn_here(hold):
        free(api, hold(int(size)))

    for _ in range(int(n)):
        churn_here(globals()["hold_" + api])


def order_threads(threads, api, n, size):
    def thread_here():
        order_hold(api, n, size)

    running = [threading.Thread(target=thread_here) for _ in range(int(threads))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def order_fail(api, n):
    for _ in range(int(n)):
        try:
            globals()["hold_" + api](TOO_MUCH)
        except Refused:
            continue
        raise AssertionError(api)


def order_totals():
    kind = 0
    while name := cuda.stub_kind(kind):
        print(name.decode(), cuda.stub_objects(kind), cuda.stub_bytes(kind))
        kind += 1


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
