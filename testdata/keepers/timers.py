"""Timers of an asyncio loop that are far off keep their arguments."""
# KEPT BY: timers.loop
# CONTAINER: list
import asyncio

import case

loop = asyncio.new_event_loop()
for step in case.steps():
    loop.call_later(100000 + step, print, case.item())
