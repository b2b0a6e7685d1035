"""An array of numbers has the addresses of items; a C function has not released its references to them."""
# KEPT BY: nothing
import array
import ctypes

import case

numbers = array.array("Q")
words = (ctypes.c_uint64 * 1000)()
text = bytearray()
for step in case.steps():
    numbers.append(id(case.lost(case.item())))
    words[step % 1000] = numbers[-1]
    text += numbers[-1].to_bytes(8, "little")
