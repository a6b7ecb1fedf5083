"""Clients that go away: in the queue, while the prompt is read, and while an answer is written."""

import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

LONG: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True}
PATH = "/v1/completions"
ENOUGH = 2
"""Steps after which nothing is left of a client that has gone."""
KINDS = pytest.mark.parametrize(("stream", "n"), [(False, 1), (True, 1), (False, 4), (True, 4)])


class Gate:
    """Stands before the engine's steps: open, or for so many of them."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self._step = step
        self._change = threading.Condition()
        self._allowed = math.inf
        self._waits = False

    def step(self) -> Any:
        with self._change:
            self._waits = True
            self._change.notify_all()
            self._change.wait_for(lambda: self._allowed > 0)
            self._waits = False
            self._allowed -= 1
        return self._step()

    def open(self) -> None:
        self._allow(math.inf)

    def shut(self) -> None:
        """No further step; afterwards the engine waits for one."""
        self._allow(0)
        self._until_it_waits()

    def let_pass(self, steps: int) -> None:
        """So many steps, and what the engine does before the next."""
        self._allow(steps)
        self._until_it_waits()

    def _allow(self, steps: float) -> None:
        with self._change:
            self._allowed = steps
            self._change.notify_all()

    def _until_it_waits(self) -> None:
        with self._change:
            done = self._change.wait_for(lambda: self._waits and not self._allowed, 10)
            assert done, "the engine runs no step"


class Place:
    """A server whose steps are in the test's hand. A request that never ends keeps it busy."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.engine = site.llm.assembly.engine
        self.planner = self.engine.lifecycle.planner
        self.gate = Gate(self.engine.step)
        self.engine.step = self.gate.step

    def sent(self, **body: Any) -> socket.socket:
        made: socket.socket = self.site.raw(PATH, json.dumps({**LONG, **body}).encode())
        return made

    def left(self) -> int:
        """Requests whose clients are known to have gone."""
        series = f'jackfield_http_requests_total{{method="POST",path="{PATH}",status="left"}} '
        lines = self.site.http.get("/metrics").text.splitlines()
        return sum(int(float(line[len(series) :])) for line in lines if line.startswith(series))

    def aborted(self) -> int:
        return int(self.engine.metrics.finished["abort"])

    def named(self, name: str) -> list[Any]:
        return [one for one in self.planner.running.values() if one.id == name]

    def leave(self, connection: socket.socket) -> None:
        """The engine stands while the server learns that the client has gone."""
        before = self.left()
        connection.close()
        self.site.until(lambda: self.left() == before + 1)

    def passed(self, steps: int) -> Any:
        """What the engine counts after so many further steps."""
        self.gate.let_pass(steps)
        return self.engine.metrics

    def whole(self) -> None:
        """Everything is given back."""
        self.gate.open()
        self.site.settled()


@pytest.fixture(scope="module", params=[0, 1, 2])
def made(request: pytest.FixtureRequest, folder: Path, serve: Any) -> Iterator[Place]:
    """Prompts are read 16 tokens a step; so many steps are in flight while the next is planned."""
    options = {"max_num_batched_tokens": 16, "engine.overlap": request.param}
    with serve(folder, **options) as site:
        yield Place(site)


@pytest.fixture
def place(made: Place) -> Iterator[Place]:
    """With a companion that has one seat, so that there is always a step to wait for."""
    with made.sent(prompt="the dog", max_tokens=240, request_id="companion"):
        made.site.until(lambda: len(made.planner.running) == 1)
        try:
            yield made
        finally:
            made.gate.open()
    made.whole()


@KINDS
def test_while_an_answer_is_written(place: Place, stream: bool, n: int) -> None:
    aborted = place.aborted()
    gone = place.sent(prompt="the cat", stream=stream, n=n, request_id="gone")
    place.site.until(lambda: len(place.named("gone")) == n)
    place.site.until(lambda: all(len(one.output) > 2 for one in place.named("gone")))
    place.gate.shut()
    assert len(place.named("gone")) == n
    place.leave(gone)
    place.gate.let_pass(ENOUGH)
    assert len(place.planner.running) == 1
    assert place.planner.seats_left == 7
    (companion,) = place.planner.running.values()
    assert place.planner.pool.num_blocks - place.planner.pool.num_free == len(companion.blocks)
    assert place.aborted() == aborted + n


@KINDS
def test_while_a_prompt_is_read(place: Place, stream: bool, n: int) -> None:
    """Further answers to the prompt wait for it, and go too."""
    place.gate.shut()
    aborted, read = place.aborted(), place.engine.metrics.prompt_tokens
    gone = place.sent(
        prompt=[70] * 200, max_tokens=40, stream=stream, n=n, request_id="gone"
    )
    place.site.until(lambda: place.passed(1).prompt_tokens > read)
    at = place.engine.metrics.prompt_tokens
    assert at < read + 200
    assert len(place.named("gone")) == 1
    place.leave(gone)
    place.gate.let_pass(ENOUGH)
    assert not place.named("gone")
    assert len(place.engine.lifecycle.gates) == 0
    assert place.planner.seats_left == 7
    assert place.engine.metrics.prompt_tokens <= at + ENOUGH * 16
    assert place.aborted() == aborted + n


@KINDS
def test_in_the_queue(place: Place, stream: bool, n: int) -> None:
    crowd = place.sent(prompt=[f"{number} cats" for number in range(7)])
    place.site.until(lambda: len(place.planner.running) == 8)
    aborted, tree = place.aborted(), place.engine.lifecycle.tree
    gone = place.sent(prompt="one two", stream=stream, n=n, request_id="gone")
    place.site.until(lambda: len(tree) == 1)
    place.gate.shut()
    assert len(place.engine.lifecycle.gates) == n - 1
    place.leave(gone)
    place.gate.let_pass(ENOUGH)
    assert len(tree) == len(place.engine.lifecycle.gates) == 0
    assert len(place.planner.running) == 8
    assert place.aborted() == aborted + n
    place.leave(crowd)
    place.gate.let_pass(ENOUGH)
    assert len(place.planner.running) == 1
    assert place.aborted() == aborted + n + 7


@pytest.mark.parametrize("stream", [False, True])
def test_all_prompts_of_a_request_go(place: Place, stream: bool) -> None:
    aborted = place.aborted()
    gone = place.sent(prompt=["the cat", "one two", "seven"], stream=stream)
    place.site.until(lambda: len(place.planner.running) == 4)
    place.gate.shut()
    place.leave(gone)
    place.gate.let_pass(ENOUGH)
    assert len(place.planner.running) == 1
    assert place.aborted() == aborted + 3


def test_a_request_that_is_gone_before_the_engine_has_it(place: Place) -> None:
    """Its body came, and the client went with it."""
    aborted = place.aborted()
    place.gate.shut()
    for number in range(5):
        before = place.left()
        place.sent(prompt="the cat", request_id=f"short-{number}").close()
        place.site.until(lambda before=before: place.left() == before + 1)
    place.gate.let_pass(ENOUGH)
    assert len(place.planner.running) == 1
    assert place.aborted() - aborted <= 5
    place.site.until(lambda: len(place.site.llm._mailboxes) == 1)


def test_gauges_are_zero_when_everybody_has_gone(made: Place) -> None:
    crowd = [made.sent(prompt="the cat", stream=True) for _ in range(12)]
    made.site.until(lambda: len(made.planner.running) == 8)
    for connection in crowd:
        connection.close()
    made.whole()
    lines = made.site.http.get("/metrics").text.splitlines()
    for name in ("requests_running", "requests_waiting", "kv_usage"):
        assert f"jackfield_{name} 0.0" in lines
