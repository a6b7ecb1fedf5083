"""Many requests whose clients go at any point leave nothing behind."""

import asyncio
import gc
import json
import socket
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil

LONG: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True}
ENGINE: dict[str, Any] = {"max_num_batched_tokens": 16, "engine.decision_log": 64}
"""Prompts are read in several steps; a ring that is full from the start does not grow."""
CROWD = 12
WARM_UP = 300
"""Requests, more than there are prompts: the cache has seen all of them then."""
PHASES = ("queue", "prompt", "answer")
FEWEST, MOST = 5, 2000
"""How many are to be left in each phase, and how many are sent for that at most."""
AIMS = (
    ("unknown", "queue", "prompt", "answer"), ("queue",), ("prompt", "answer"), ("answer",),
)  # fmt: skip
"""A crowd leaves when one of it has come so far; the others are then where they are."""
LEAK = 1024
"""Bytes a request: a leak of that size is found."""


class Abandoned:
    """Sends requests to a server and leaves them. phases: where they were then."""

    def __init__(self, site: Any, seed: int) -> None:
        self.site = site
        self.engine = site.llm.assembly.engine
        self.phases: Counter[str] = Counter()
        self.answers = 0
        self._random = Random(seed)
        self._sent = 0

    def leave(self, count: int) -> None:
        """So many requests, about a dozen at once."""
        for done in range(0, count, CROWD):
            self._leave_crowd(min(CROWD, count - done))
        self.site.settled()

    def _leave_crowd(self, count: int) -> None:
        aims = self._random.choice(AIMS)
        with ExitStack() as crowd:
            names = [self._send(crowd) for _ in range(count)]
            self.site.until(lambda: any(self._phase(name) in aims for name in names))
            self.phases.update(map(self._phase, names))

    def _send(self, crowd: ExitStack) -> str:
        self._sent += 1
        name, n = f"request-{self._sent}", self._random.randint(1, 3)
        self.answers += n
        body = {
            **LONG, "request_id": name, "n": n, "stream": self._random.random() < 0.5,
            "prompt": [3 + self._sent % 250] * self._random.choice((2, 20, 50)),
        }  # fmt: skip
        path = "/v1/completions"
        connection = crowd.enter_context(self.site.raw(path, json.dumps(body).encode()))
        if self._random.random() < 0.3:
            connection.shutdown(socket.SHUT_RDWR)
        return name

    def _phase(self, name: str) -> str:
        members = list(self.engine._requests.get(name, ()))
        if not members:
            return "unknown"
        if any(member.output for member in members):
            return "answer"
        return "prompt" if any(member.computed for member in members) else "queue"

    def held(self) -> dict[str, int]:
        """All that must be the same again."""
        lifecycle = self.engine.lifecycle
        loop = self.site.llm._mailboxes._loop
        return {
            "free blocks": lifecycle.planner.pool.num_free,
            "free seats": lifecycle.planner.seats_left,
            "requests": len(self.engine._requests) + len(self.engine._arrivals),
            "in flight": len(self.engine._in_flight),
            "waiting": len(lifecycle.tree) + len(lifecycle.valve.requests()),
            "parked": len(lifecycle.gates),
            "news": len(lifecycle.outbox) + len(lifecycle.ended),
            "mailboxes": len(self.site.llm._mailboxes),
            "tasks": len(asyncio.all_tasks(loop)),
            "threads": threading.active_count(),
            "files": psutil.Process().num_fds(),
        }


@contextmanager
def tracing() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def traced() -> int:
    """Bytes that Python holds."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def nothing_is_left(site: Any, count: int) -> Counter[str]:
    """Leave so many requests after a few that warm everything up. Where they were left."""
    with tracing():
        crowd = Abandoned(site, seed=count)
        crowd.leave(WARM_UP)
        before, bytes_before = crowd.held(), traced()
        crowd.phases.clear()
        crowd.leave(count)
        while min(crowd.phases[phase] for phase in PHASES) < FEWEST and count < MOST:
            crowd.leave(CROWD)  # who is left where is a race
            count += CROWD
        try:
            site.until(lambda: crowd.held() == before)
        except AssertionError:
            held = crowd.held()
            left = {key: (before[key], held[key]) for key in before if held[key] != before[key]}
            raise AssertionError(f"before and after: {left}") from None
        assert traced() - bytes_before < LEAK * count
    finished = crowd.engine.metrics.finished
    assert set(finished) == {"abort"}
    assert finished["abort"] <= crowd.answers
    crowd.engine.check()
    return crowd.phases


def test_six_hundred(folder: Path, serve: Any) -> None:
    with serve(folder, **ENGINE) as site:
        phases = nothing_is_left(site, 600)
    assert all(phases[phase] >= FEWEST for phase in PHASES), phases
