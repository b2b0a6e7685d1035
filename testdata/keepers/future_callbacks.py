"""Callbacks of an asyncio future that is never done keep the items."""
# KEPT BY: future_callbacks.future
# CONTAINER: list
import asyncio
import functools

import case

loop = asyncio.new_event_loop()
future = loop.create_future()
future.add_done_callback(print)  # the first has a field of its own
for step in case.steps():
    future.add_done_callback(functools.partial(print, case.item()))
