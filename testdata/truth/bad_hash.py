"""An object that __hash__ returns in place of an int is not released (gh-140406)."""

import itertools

import paced

numbers = itertools.count()


class Wrong:
    def __hash__(self):
        return ("x%d" % next(numbers)) * 10  # NAMED


class Right:
    def __hash__(self):
        return hash(("x%d" % next(numbers)) * 10)


def leaking(kind=Wrong):
    try:
        hash(kind())
    except TypeError:
        pass


paced.run(leaking, lambda: leaking(Right), 500)
