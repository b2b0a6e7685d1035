"""A static array of a C library keeps the items."""
# KEPT BY: libkeep.so: kept
# NEEDS: libkeep
# UNSEEN BY GC
import ctypes
import sys

import case

library = ctypes.CDLL(sys.argv[1])
library.keep.argtypes = ctypes.pythonapi.Py_IncRef.argtypes = [ctypes.py_object]


def keep(thing):
    ctypes.pythonapi.Py_IncRef(thing)
    library.keep(thing)


for step in case.steps():
    keep(case.item())
