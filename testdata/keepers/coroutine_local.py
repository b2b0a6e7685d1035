"""A local variable of an asyncio task that waits keeps the items."""
# KEPT BY: local received of coroutine receive() (coroutine_local.py)
# ALSO: local task of main() (coroutine_local.py)
# CONTAINER: list
import asyncio

import case


async def receive():
    received = []
    while True:
        received.append(case.item())
        await asyncio.sleep(0)


async def main():
    task = asyncio.ensure_future(receive())
    for step in case.steps():
        await asyncio.sleep(0)
    task.cancel()


asyncio.run(main())
