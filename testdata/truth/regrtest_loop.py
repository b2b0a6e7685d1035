"""Runs a module of CPython's regression tests again and again, by the runner's own function, which
keeps no result: the runner's option -F appends the time of each run to a list that only grows.

Usage: regrtest_loop.py MODULE
"""

import os
import sys

from test.libregrtest.cmdline import _parse_args
from test.libregrtest.runtest import runtest
from test.libregrtest.setup import setup_tests

settings = _parse_args([sys.argv[1]])
setup_tests(settings)
with open(os.devnull, "w") as nothing:
    sys.stdout = sys.stderr = nothing
    while True:
        runtest(settings, sys.argv[1])
