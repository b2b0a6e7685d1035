"""A queue.Queue that nobody empties keeps the items."""
# KEPT BY: in_queue.tasks
# CONTAINER: collections.deque
import queue

import case

tasks = queue.Queue()
for step in case.steps():
    tasks.put(case.item())
