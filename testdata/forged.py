"""Forges memory that a census and a search read: types, containers, pools and chunks that lie.

The argument names what is forged. The program prints "ready", the address of an object to which it
has lost its reference, and "done", and sleeps until its input ends. Its own code uses none of what
it has forged.
"""

import ctypes
import mmap
import os
import sys

python, libc = ctypes.pythonapi, ctypes.CDLL(None)
python.PyObject_Malloc.restype = libc.malloc.restype = ctypes.c_void_p
python.PyObject_Malloc.argtypes = libc.malloc.argtypes = [ctypes.c_size_t]

READY, HEAP, GC, SUBTYPE = 1 << 12, 1 << 9, 1 << 14, 1 << 31
LIST, TUPLE, DICT = 1 << 25, 1 << 26, 1 << 29
HUGE = 1 << 60


class Lost:
    __slots__ = ["slot%d" % number for number in range(20)]


def lost():
    thing = Lost()
    python.Py_IncRef(ctypes.py_object(thing))
    return id(thing)


def put(address, *words):
    for number, word in enumerate(words):
        ctypes.c_uint64.from_address(address + 8 * number).value = word & (1 << 64) - 1


def chunk(size, *words):
    """Memory of malloc."""
    address = libc.malloc(size)
    ctypes.memset(address, 0, size)
    put(address, *words)
    return address


def block(size, *words):
    """A block of a pool."""
    address = python.PyObject_Malloc(size)
    ctypes.memset(address, 0, size)
    put(address, *words)
    return address


def forge_type(flags=READY, name=b"forged", meta=id(type), base=id(object)):
    """A PyTypeObject. Its first fields lie the same in all versions."""
    text = chunk(len(name) + 1)
    ctypes.memmove(text, name, len(name))
    address = chunk(1000, 1, meta, 0, text, 32, 0)
    put(address + 168, flags)
    put(address + 256, base)
    return address


def forge_objects(of, count=100, *words):
    """Objects of a type, which are in pools."""
    for number in range(count):
        block(64, 1, of, *words)


def types(target):
    """Types that lead to each other without an end, or have names without one."""
    itself = forge_type(name=b"forged.base_is_itself")
    put(itself + 256, itself)
    one, other = forge_type(name=b"forged.one"), forge_type(name=b"forged.other")
    put(one + 256, other)
    put(other + 256, one)
    meta = forge_type(READY | SUBTYPE, name=b"forged.meta_is_itself")
    put(meta + 8, meta)
    left, right = forge_type(READY | SUBTYPE), forge_type(READY | SUBTYPE)
    put(left + 8, right)
    put(right + 8, left)
    chain = forge_type(name=b"forged.chain")
    for number in range(20000):
        chain = forge_type(name=b"forged.chain", base=chain)
    for of in itself, one, meta, left, chain:
        forge_objects(of, 100, target)
    forge_objects(forge_type(name=b"A" * (1 << 20)))
    forge_objects(forge_type(name=b"forged.\x1b[31m\xff\xfe" + b"\xe2\x80\xae"))
    forge_objects(forge_type(READY | HEAP | GC, name=b"forged"))
    members = forge_type(name=b"forged.members")
    put(members + 240, chunk(40 * 10000, *[members, 6, 16, 0, 0] * 10000))
    forge_objects(members, 100, target)


def containers(target):
    """Containers of 2^60 entries, whose tables have the address of the target."""
    table = chunk(4096, *[target] * 512)
    for flags in LIST, TUPLE, DICT:
        of = forge_type(READY | flags, name=b"forged.container")
        for size in HUGE, (1 << 64) - 1, 1 << 40, 1 << 62:
            for holder in block, chunk:
                holder(104, 1, of, size, table, table, table, table, size, size, size, size, size)
    names = {b"set": 2, b"collections.deque": 2, b"function": 0, b"cell": 0, b"frame": 0, b"generator": 0}
    for name in names:
        of = forge_type(name=name)
        for size in HUGE, (1 << 64) - 1, 1 << 40:
            block(104, 1, of, size, size, size, table, table, target, table, table, target)
            block(104, 1, of, target, table, size, size, target, table)
    keys = chunk(4096, 1, 60 | 61 << 8 | 2 << 16, HUGE, HUGE, *[target] * 400)
    of = forge_type(READY | DICT, name=b"dict")
    block(64, 1, of, HUGE, 0, keys, 0)
    block(64, 1, of, HUGE, 0, keys, keys)


def modules(target):
    """Modules whose dicts lie, with long names."""
    for number in range(20):
        module = type(sys)("forged" * 1000 + str(number))
        sys.modules[module.__name__] = module
        keys = chunk(8192, 1, 60 | 61 << 8 | number % 3 << 16, HUGE, HUGE, *[target] * 900)
        # PyDictObject: ma_used, ma_version_tag, ma_keys, ma_values
        put(id(module.__dict__) + 16, HUGE, 0, keys, 0 if number % 2 else keys)


def anonymous(size):
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    kept.append(memory)
    return memory, address


kept = []


def pools(target):
    """Pools whose lists of free blocks have no end or lead elsewhere."""
    memory, address = anonymous(4 << 20)
    pool = 16 << 10 if sys.version_info >= (3, 10) else 4 << 10
    first = (address + pool - 1) // pool * pool
    for number in range(200):
        at = first + number * pool
        free = [at + 48, at + 49, at, at + pool, HUGE, 8][number % 6]
        count = [1, 2, 0xFFFFFFFF][number % 3]
        put(at, count, free, at, at, 3 << 32, 48 + 64 * 10 | pool - 64 << 32)
        put(at + 48, *[at + 48, target, target, target] * 60)


def words(target):
    """Memory that no malloc knows, full of the address of the target, and of headers of chunks."""
    memory, address = anonymous(96 << 20)
    half = len(memory) // 2
    line = target.to_bytes(8, "little") * 512
    memory[:half] = line * (half // 4096)
    page = (0).to_bytes(8, "little") + (4096 | 2).to_bytes(8, "little") + line[16:]
    memory[half:] = page * (half // 4096)


def fan(target):
    """Very many objects refer to the target, and are kept."""
    del target
    kept.append([(Lost.shared, number) for number in range(300000)])


Lost.shared = Lost()
what = sys.argv[-1]
target = id(Lost.shared) if what == "fan" else lost()
globals()[what](target)
print("ready", os.getpid(), target)
print("done", flush=True)
sys.stdin.read()
libc._exit(0)  # the interpreter must not tidy up what is forged
