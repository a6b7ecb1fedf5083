"""What the engine measured of one answer."""

from typing import NamedTuple

from jackfield.core.engine.request import Request


class Timings(NamedTuple):
    """Times are seconds since the answer's request arrived; None: that has not happened.

    admitted: its first seat. so_far: when this was taken, which in the last delta is the end.
    num_cached: prompt positions that were there at its first seat. num_computed: the others, as
    far as they were planned; positions that a preemption lost count once.
    """

    admitted: float | None
    first_token: float | None
    last_token: float | None
    so_far: float
    num_preemptions: int
    num_cached: int
    num_computed: int


def timings_of(request: Request, now: float) -> Timings:
    """Until now, by the engine's clock."""
    arrival, reached = request.arrival, max(request.computed, request.recompute_until)
    return Timings(
        admitted=_since(arrival, request.admitted_at),
        first_token=_since(arrival, request.first_token_at),
        last_token=_since(arrival, request.last_token_at),
        so_far=now - arrival,
        num_preemptions=request.num_preemptions,
        num_cached=request.first_cached,
        num_computed=max(min(reached, len(request.prompt)) - request.first_cached, 0),
    )


def _since(arrival: float, moment: float | None) -> float | None:
    return None if moment is None else moment - arrival
