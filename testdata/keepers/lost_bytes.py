"""Objects that are data have the addresses of the items; a C function has not released its references."""
# KEPT BY: nothing
import ctypes
import io
import mmap
import struct

import case


class Token(bytes):
    pass


class Number(float):
    pass


class Pair(ctypes.Structure):
    _fields_ = [("one", ctypes.c_void_p), ("other", ctypes.c_uint64 * 100)]


kinds = (
    lambda address, text: ctypes.c_void_p(address),
    lambda address, text: ctypes.c_uint64(address),
    lambda address, text: Pair(address, (ctypes.c_uint64 * 100)(*[address] * 100)),
    lambda address, text: (ctypes.c_uint64 * 2)(address, address),
    lambda address, text: ctypes.pointer(ctypes.c_uint64(address)),
    lambda address, text: ctypes.create_string_buffer(text * 100),
    lambda address, text: text * 3,
    lambda address, text: Token(text * 4),
    lambda address, text: bytearray(text * 5),
    lambda address, text: memoryview(text * 6),
    lambda address, text: bytearray(text * 200),
    lambda address, text: io.BytesIO(text * 10),
    lambda address, text: complex(*struct.unpack("<dd", text * 2)),
    lambda address, text: Number(struct.unpack("<d", text)[0]),
    lambda address, text: (text * 100).decode("latin-1"),
    lambda address, text: (text * 100).decode("utf-16-le", "replace"),
)
kept = {number: [] for number in range(len(kinds))}
memory = mmap.mmap(-1, 1 << 16)
for step in case.steps():
    address = id(case.lost(case.item()))
    for number, kind in enumerate(kinds):
        kept[number].append(kind(address, address.to_bytes(8, "little")))
    memory.write(address.to_bytes(8, "little"))
