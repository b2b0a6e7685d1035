"""OSError.__init__ forgets attributes that were set before it (gh-150988)."""

import itertools

import paced

numbers = itertools.count()


class Early(OSError):
    def __init__(self, *arguments):
        n = next(numbers)
        self.filename = ("file%d" % n) * 8  # NAMED
        super().__init__(*arguments)


paced.run(lambda: Early(2, "none", "name"), lambda: OSError(2, "none", ("file%d" % next(numbers)) * 8),
          400)
