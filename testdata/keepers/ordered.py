"""A collections.OrderedDict keeps the items."""
# KEPT BY: ordered.cache
# CONTAINER: collections.OrderedDict
import collections

import case

cache = collections.OrderedDict()
for step in case.steps():
    cache["step %d" % step] = case.item()
