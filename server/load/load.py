"""A workload for a server: so many streams at once, each sends its next request when one ends."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from jackfield.core.api import EngineStoppedError
from jackfield.core.bench.workloads import Workload
from jackfield.server.load.connection import Connection, Target, connect
from jackfield.server.load.exchange import Exchange
from jackfield.server.load.streamed_answer import StreamedAnswer

POLL = 0.05
CPU_SECONDS = re.compile(rb"^process_cpu_seconds_total ([0-9.e+-]+)$", re.MULTILINE)


class Load(NamedTuple):
    """model: its name at the server; None = whatever the server has. streams: at once.

    watch: ask for /health twenty times a second meanwhile.
    """

    target: Target
    workload: Workload
    model: str | None
    streams: int
    watch: bool


class Outcome(NamedTuple):
    """cpu: seconds of a processor that the server's process took; None if it does not tell.

    health: seconds of each answer of /health; an answer that did not come is infinite.
    """

    seconds: float
    answers: list[StreamedAnswer]
    health: list[float]
    cpu: float | None


async def run_load(load: Load) -> Outcome:
    """All requests of the workload. Raises `EngineStoppedError` if there is no server."""
    connections = [await _connected(load.target) for _ in range(load.streams)]
    before = await _cpu_seconds(load.target)
    left = iter(list(zip(load.workload.prompts, load.workload.lengths, strict=True)))
    exchanges: list[tuple[Exchange, int]] = []
    loop = asyncio.get_running_loop()
    async with _watching(load) as health:
        started = loop.time()
        await asyncio.gather(*(_stream(load, one, left, exchanges) for one in connections))
        seconds = loop.time() - started
    after = await _cpu_seconds(load.target)
    answers = [StreamedAnswer.of(exchange, wanted) for exchange, wanted in exchanges]
    cpu = None if before is None or after is None else after - before
    return Outcome(seconds, answers, health, cpu)


async def _connected(target: Target) -> Connection:
    try:
        return await connect(target)
    except OSError as error:
        raise EngineStoppedError(
            f"no server answers at {target.host} port {target.port}: {error}"
        ) from error


async def _stream(
    load: Load,
    connection: Connection,
    left: Iterator[tuple[list[int], int]],
    exchanges: list[tuple[Exchange, int]],
) -> None:
    try:
        for prompt, length in left:
            if not connection.is_open:
                connection = await _connected(load.target)
            body = _body(prompt, length, load.model)
            request = load.target.request("POST", "/v1/completions", body)
            exchanges.append((await connection.ask(request), length))
    finally:
        connection.close()


def _body(prompt: list[int], length: int, model: str | None) -> bytes:
    fields = {
        "prompt": prompt, "max_tokens": length, "ignore_eos": True, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    return json.dumps(fields if model is None else {**fields, "model": model}).encode()


@asynccontextmanager
async def _watching(load: Load) -> AsyncIterator[list[float]]:
    """Ask for /health until the body is left. Gives the list of times, which grows."""
    times: list[float] = []
    if not load.watch:
        yield times
        return
    watcher = asyncio.create_task(_watch(load.target, times))
    try:
        yield times
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


async def _watch(target: Target, times: list[float]) -> None:
    request = target.request("GET", "/health")
    while True:
        connection = await _connected(target)
        try:
            exchange = await connection.ask(request)
        finally:
            connection.close()
        healthy = exchange.status == 200 and exchange.whole
        times.append(exchange.ended - exchange.started if healthy else float("inf"))
        await asyncio.sleep(POLL)


async def _cpu_seconds(target: Target) -> float | None:
    connection = await _connected(target)
    try:
        exchange = await connection.ask(target.request("GET", "/metrics"))
    finally:
        connection.close()
    found = CPU_SECONDS.search(exchange.body())
    return None if found is None else float(found[1])
