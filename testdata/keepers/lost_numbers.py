"""Arrays and scalars of NumPy have the addresses of the items; a C function has not released its references."""
# KEPT BY: nothing
# NEEDS: numpy
import numpy

import case


class Series(numpy.ndarray):
    pass


arrays, scalars = [], []
for step in case.steps():
    address = id(case.lost(case.item()))
    for shape in 1, 8, 200:
        numbers = numpy.full(shape, address, dtype=numpy.uint64)
        arrays += [numbers, numbers.view(Series), numbers.view([("a", "u8")]), numbers[:1].copy().view(Series)]
    scalars += [numpy.uint64(address), numpy.int64(address), arrays[-1][0], numbers.view("V8")[0]]
