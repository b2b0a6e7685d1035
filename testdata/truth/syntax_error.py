"""SyntaxError.__init__ forgets what it held before (gh-146250)."""

import itertools

import paced

numbers = itertools.count()
error = SyntaxError()


def leaking(target=error):
    n = next(numbers)
    target.__init__("m%d" % n, ("f%d" % n, 1, 1, ("text%d" % n) * 20, 1, 1))  # NAMED


paced.run(leaking, lambda: leaking(SyntaxError()), 200)
