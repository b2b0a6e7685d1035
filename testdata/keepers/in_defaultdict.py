"""A collections.defaultdict of lists keeps the items."""
# KEPT BY: in_defaultdict.by_day
# CONTAINER: collections.defaultdict 7
import collections

import case

by_day = collections.defaultdict(list)
for step in case.steps():
    by_day[step % 7].append(case.item())
