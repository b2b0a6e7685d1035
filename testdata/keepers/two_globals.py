"""A dict and a list of the program keep the items, each of them all."""
# KEPT BY: two_globals.cache
# KEPT BY: two_globals.log
# EACH
import case

cache, log = {}, []
for step in case.steps():
    item = cache[step] = case.item()
    log.append(item)
