"""A list that heapq keeps in order has the items in tuples."""
# KEPT BY: in_heap.waiting
# CONTAINER: list
import heapq

import case

waiting = []
for step in case.steps():
    heapq.heappush(waiting, (step % 17, step, case.item()))
