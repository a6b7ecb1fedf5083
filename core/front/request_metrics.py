"""Where the time of a finished request went."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jackfield.core.engine.timings import Timings


class RequestMetrics(NamedTuple):
    """Seconds by the engine's clock, and counts. None: that never happened.

    queued_time: from the arrival at the engine to the first seat. prefill_time: from there to the
    first token. time_to_first_token: from the arrival to the first token. decode_time: from the
    first token to the last. total_time: from the arrival to the end; None for a request that was
    given up before the engine had it. Of several answers the first to get there counts, and for
    the last token and the end the last one; counts are added up.

    num_cached_tokens, num_computed_tokens: prompt positions that were there when the answer got
    its first seat, and those that were computed then.
    """

    queued_time: float | None = None
    prefill_time: float | None = None
    time_to_first_token: float | None = None
    decode_time: float | None = None
    total_time: float | None = None
    num_preemptions: int = 0
    num_cached_tokens: int = 0
    num_computed_tokens: int = 0

    @staticmethod
    def of(timings: Sequence[Timings]) -> "RequestMetrics":
        """Of the answers that the engine spoke of."""
        if len(timings) == 1:
            return _of_one(timings[0])
        admitted = _first(one.admitted for one in timings)
        first = _first(one.first_token for one in timings)
        last = max((one.last_token for one in timings if one.last_token is not None), default=None)
        return RequestMetrics(
            queued_time=admitted,
            prefill_time=_between(admitted, first),
            time_to_first_token=first,
            decode_time=_between(first, last),
            total_time=max((one.so_far for one in timings), default=None),
            num_preemptions=sum(one.num_preemptions for one in timings),
            num_cached_tokens=sum(one.num_cached for one in timings),
            num_computed_tokens=sum(one.num_computed for one in timings),
        )


def _of_one(told: Timings) -> RequestMetrics:
    """Most requests have one answer."""
    return RequestMetrics(
        told.admitted,
        _between(told.admitted, told.first_token),
        told.first_token,
        _between(told.first_token, told.last_token),
        told.so_far,
        told.num_preemptions,
        told.num_cached,
        told.num_computed,
    )


def _first(moments: Iterable[float | None]) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None else end - start
