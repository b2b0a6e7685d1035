"""Task.__init__ forgets the context that it held before (gh-126083)."""

import asyncio
import contextvars

import paced

loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda *_: None)


async def nothing():
    pass


def leaking(again=True):
    work = nothing()
    task = asyncio.Task(work, loop=loop)
    if again:
        for _ in range(12):
            task.__init__(work, loop=loop, context=contextvars.copy_context())  # NAMED
    loop.call_soon(loop.stop)
    loop.run_forever()


paced.run(leaking, lambda: leaking(False), 20)
