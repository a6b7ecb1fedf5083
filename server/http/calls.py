"""Requests to the engine: one, or several at once as one flow of news."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from jackfield.core.api.request import RequestContext
from jackfield.core.api.sampling import SamplingParams
from jackfield.server.http.backend import Backend

if TYPE_CHECKING:
    from jackfield.core.front.outputs import RequestOutput

News = tuple[int, "RequestOutput"]


class Call(NamedTuple):
    """One prompt for the engine. prompt: its ids, and its text if it had one."""

    id: str
    prompt: Mapping[str, Any]
    params: SamplingParams
    context: RequestContext


async def follow_all(backend: Backend, calls: Sequence[Call]) -> AsyncGenerator[News, None]:
    """Yield a call's place and its growing output whenever it has grown.

    Closing it aborts all calls. The first error ends it, and the other calls.
    """
    if len(calls) == 1:
        async with aclosing(_follow(backend, calls[0])) as outputs:
            async for output in outputs:
                yield 0, output
        return
    async with aclosing(_merged(backend, calls)) as news:
        async for item in news:
            yield item


def _follow(backend: Backend, call: Call) -> "AsyncGenerator[RequestOutput, None]":
    return backend.follow(call.prompt, call.params, request_id=call.id, context=call.context)


async def _merged(backend: Backend, calls: Sequence[Call]) -> AsyncGenerator[News, None]:
    queue: asyncio.Queue[News | Exception | None] = asyncio.Queue()

    async def pump(place: int, call: Call) -> None:
        try:
            async with aclosing(_follow(backend, call)) as outputs:
                async for output in outputs:
                    queue.put_nowait((place, output))
        except Exception as error:
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(pump(place, call)) for place, call in enumerate(calls)]
    left = len(tasks)
    try:
        while left:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
