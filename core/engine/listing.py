"""Who is in the engine now, and why each is where it is."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from jackfield.core.engine.decisions import CORE
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.loop import Engine
from jackfield.core.engine.places import Place, places
from jackfield.core.engine.reasons import Code, why_waits
from jackfield.core.engine.request import Request, Status

STATES = ("running", "waiting", "parked")
MOST_ROWS = 1_000


class Query(NamedTuple):
    """Which requests to list; None = whichever. limit: rows at most, up to 1000."""

    state: str | None = None
    tenant: str | None = None
    id: str | None = None
    limit: int = 100


class RequestRow(NamedTuple):
    """One answer. Times are in seconds; `code`, `reason` and `plugin`: why it is in that state.

    age: since its arrival. since: how long it has been in its state. position: in the queue,
    1 = next; None = it is held back, far behind, or does not wait. until: to the moment when it
    is woken or no longer held back, at the latest. deadline: to it. blocks: that it holds, or
    while it waits, that it would take.
    """

    id: str
    answer: int
    tenant: str
    tier: str
    priority: int
    state: str
    age: float
    since: float
    code: str
    reason: str
    plugin: str
    position: int | None
    until: float | None
    deadline: float | None
    prompt_tokens: int
    computed_tokens: int
    output_tokens: int
    max_tokens: int
    blocks: int
    preemptions: int


class RequestPage(NamedTuple):
    """counts: answers by state, of all that the query means but for the limit."""

    counts: dict[str, int]
    free_seats: int
    free_blocks: int
    rows: list[RequestRow]


class _Why(NamedTuple):
    code: str
    reason: str
    plugin: str
    until: float = math.inf


def list_requests(engine: Engine, query: Query) -> RequestPage:
    """In the engine's thread, between two steps. Running ones first, by arrival; then the queue."""
    chosen: dict[str, list[Request]] = {state: [] for state in STATES}
    for request in engine.requests():
        if query.tenant in (None, request.context.tenant) and query.id in (None, request.id):
            chosen[_state(request)].append(request)
    planner, rows = engine.lifecycle.planner, list[RequestRow]()
    for state in STATES if query.state is None else (query.state,):
        left = min(query.limit, MOST_ROWS) - len(rows)
        if left > 0 and chosen[state]:
            rows += _rows(engine.lifecycle, state, chosen[state], left)
    counts = {state: len(found) for state, found in chosen.items()}
    return RequestPage(counts, planner.seats_left, planner.pool.num_free, rows)


def _state(request: Request) -> str:
    """A request that the engine has not looked at yet waits, too."""
    return "waiting" if request.status is Status.NEW else request.status.value


def _rows(
    lifecycle: Lifecycle, state: str, chosen: list[Request], limit: int
) -> list[RequestRow]:
    now = lifecycle.now()
    if state == "waiting":
        found = list(islice(_queued(lifecycle, chosen, now), limit))
    else:
        chosen.sort(key=lambda request: request.handle)
        found = [Place(request, None, None) for request in chosen[:limit]]
    return [_row(lifecycle, place, state, now) for place in found]


def _queued(lifecycle: Lifecycle, chosen: list[Request], now: float) -> Iterator[Place]:
    yield from places(lifecycle.tree, [one for one in chosen if one.status is Status.WAITING], now)
    for request in chosen:
        if request.status is Status.NEW:
            yield Place(request, None, None)


def _row(lifecycle: Lifecycle, place: Place, state: str, now: float) -> RequestRow:
    request = place.request
    why, context, planner = _why(lifecycle, place, now), request.context, lifecycle.planner
    waits = request.status is Status.WAITING
    return RequestRow(
        id=request.id,
        answer=request.index,
        tenant=context.tenant,
        tier=context.tier,
        priority=context.priority,
        state=state,
        age=now - request.arrival,
        since=now - request.since,
        code=why.code,
        reason=why.reason,
        plugin=why.plugin,
        position=place.number,
        until=why.until - now if why.until < math.inf else None,
        deadline=None if context.deadline is None else context.deadline - now,
        prompt_tokens=len(request.prompt),
        computed_tokens=request.computed,
        output_tokens=len(request.output),
        max_tokens=request.max_tokens,
        blocks=planner.admission_blocks(request) if waits else len(request.blocks),
        preemptions=request.num_preemptions,
    )


def _why(lifecycle: Lifecycle, place: Place, now: float) -> _Why:
    request, last = place.request, place.request.decision
    assert last is not None, "its arrival is recorded"
    if request.status is Status.WAITING:
        return _why_waiting(lifecycle, place)
    gate = lifecycle.gates.why(request)
    return _Why(last.code, last.reason, last.plugin, math.inf if gate is None else gate.until)


def _why_waiting(lifecycle: Lifecycle, place: Place) -> _Why:
    number, hold = place.number, place.hold
    if hold is not None:
        reason = f"its class is held back by {hold.plugin}"
        return _Why(Code.HELD_BACK, reason, hold.plugin, hold.until)
    if number != 1:
        before = "many requests go" if number is None else _before(number - 1)
        return _Why(Code.BEHIND, f"{before} before it", CORE)
    code = lifecycle.head_waits
    if code is None:
        return _Why(Code.NEXT, "it goes next", CORE)
    reason = why_waits(code, place.request, lifecycle.planner)
    return _Why(code, reason, lifecycle.limiter(code))


def _before(count: int) -> str:
    return "1 request goes" if count == 1 else f"{count} requests go"
