"""C functions that have returned left the addresses of items on the stack; their references are lost."""
# KEPT BY: nothing
# NEEDS: libkeep
import ctypes
import sys

import case

library = ctypes.CDLL(sys.argv[1])
library.pass_down.argtypes = [ctypes.py_object, ctypes.c_int]
for step in case.steps():
    library.pass_down(case.lost(case.item()), 200)
