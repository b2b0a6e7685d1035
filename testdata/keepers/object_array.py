"""An array of objects of NumPy keeps the items."""
# KEPT BY: object_array.table
# NEEDS: numpy
# UNSEEN BY GC
import numpy

import case

table = numpy.empty(4000, dtype=object)
for step in case.steps():
    table[step] = case.item()
