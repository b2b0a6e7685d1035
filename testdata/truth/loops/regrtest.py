"""Runs a module of CPython's regression tests in an endless loop, as the search for leaks of its
test runner (option -R) does: after each run it takes away what a test leaves in the caches of the
interpreter. The runner's option -F does not, and keeps the time of each run.

Usage: regrtest.py MODULE
"""

import collections.abc
import copyreg
import importlib
import inspect
import os
import sys
import warnings
import zipimport
from _abc import _get_dump

from test import support
from test.libregrtest.cmdline import _parse_args
from test.libregrtest.refleak import dash_R_cleanup, warm_caches
from test.libregrtest.runtest import _test_module
from test.libregrtest.setup import setup_tests

name = sys.argv[1]
setup_tests(_parse_args([name]))
module = importlib.import_module(f"test.{name}")

# The values that each cleanup restores.
warm_caches()
bases = [getattr(collections.abc, base) for base in collections.abc.__all__]
registered = {
    each: _get_dump(each)[0]
    for base in bases
    if inspect.isabstract(base)
    for each in [*base.__subclasses__(), base]
}
saved = (
    warnings.filters[:],
    copyreg.dispatch_table.copy(),
    sys.path_importer_cache.copy(),
    zipimport._zip_directory_cache.copy(),
    registered,
)

with open(os.devnull, "w") as nothing:
    sys.stdout = sys.stderr = nothing
    while True:
        try:
            module.test_main() if hasattr(module, "test_main") else _test_module(module)
        except (support.TestFailed, KeyboardInterrupt):
            pass  # a test that fails, or interrupts itself, leaks no more than one that passes
        dash_R_cleanup(*saved)
        support.gc_collect()
        support.reap_children()
