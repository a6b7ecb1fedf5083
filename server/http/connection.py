"""A client that goes away is not worked for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client has closed the connection, so nobody waits for the answer."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """What `work` gives. It is cancelled, and `ClientGone` raised, when the client goes first.

    The body of the request must have been read.
    """
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_leaving(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _leaving(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
