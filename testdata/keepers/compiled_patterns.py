"""The cache of the module re keeps the compiled patterns."""
# KEPT BY: re._cache
# ALSO: re._cache2
import re

import case

for step in case.steps(200, grow=False):
    case.noted(re.compile("step %d" % step))
