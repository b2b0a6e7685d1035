"""A chunk of a C library has the only references to the items; the library hides its address."""
# KEPT BY: nothing
# NEEDS: libkeep
import ctypes
import sys

import case

library = ctypes.CDLL(sys.argv[1])
library.hide.argtypes = [ctypes.py_object]
for step in case.steps():
    library.hide(case.lost(case.item()))
