"""The cache of the module linecache keeps the lines of source files."""
# KEPT BY: linecache.cache
import glob
import linecache
import os

import case

files = sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))
for step in case.steps(60, grow=False):
    case.noted(linecache.getlines(files[step]))
