"""The claim that what is let in of one tenant keeps to a rate."""

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from jackfield.core.api import Rate
from jackfield.core.engine.request import Request, Status
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.inspectors import Inspector
from jackfield.core.testing.lives import TENANTS
from jackfield.core.testing.stories import NEVER, Arrival, Story

if TYPE_CHECKING:
    from jackfield.core.testing.watch import Watch

ROUNDING = 1e-6
LONGEST = 2000
MOST = 40


def crowds(rate: Rate) -> Any:
    """A strategy for lives in which one or two tenants soon want more than the rate and burst."""
    longest = min(max(int(rate.burst / 4), 2), LONGEST)
    seconds = longest / rate.tokens_per_second
    fits = Sizes(
        num_blocks=64,
        block_size=-(-longest // 8),
        max_tokens=4 * longest,
        max_seqs=8,
        max_model_len=4 * longest,
        share=0.0,
    )
    arrivals = st.builds(
        Arrival,
        steps=st.integers(0, 2),
        seconds=st.sampled_from([0.0, 0.0, seconds / 4, seconds]),
        tenant=st.sampled_from(TENANTS[:2]),
        priority=st.just(0),
        due=st.none(),
        prompt=st.integers(1, longest),
        answer=st.integers(1, min(longest, 50)),
        answers=st.just(1),
        leaves=st.just(NEVER),
    )
    lives = st.lists(arrivals, min_size=1, max_size=MOST)
    return st.builds(Story, sizes=st.just(fits), arrivals=lives)


class LettingIn(Inspector):
    """Notes when each request got past the door, and at the end what it took."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._candidates: dict[Request, None] = {}
        self._accepted: dict[Request, float] = {}

    def before(self, watch: "Watch") -> None:
        self._candidates.update(dict.fromkeys(watch.engine._arrivals))

    def after(self, watch: "Watch") -> None:
        for request in list(self._candidates):
            if request.status is not Status.PARKED:
                del self._candidates[request]
                if request.status is not Status.FINISHED or request.admitted_at is not None:
                    self._accepted[request] = watch.now

    def end(self, watch: "Watch") -> None:
        tenants: dict[str, list[tuple[float, int]]] = {}
        for request, time in self._accepted.items():
            used = 0 if request.admitted_at is None else len(request.prompt) + len(request.output)
            tenants.setdefault(request.context.tenant, []).append((time, used))
        for tenant, taken in tenants.items():
            self._check(tenant, taken)

    def _check(self, tenant: str, taken: list[tuple[float, int]]) -> None:
        for first in range(len(taken)):
            total = 0
            for time, used in taken[first:]:
                total += used
                seconds = time - taken[first][0]
                most = self._rate.tokens_per_second * seconds + self._rate.burst
                assert total <= most + ROUNDING, (
                    f"in {seconds:g} seconds {tenant} was let in for {total} tokens; "
                    f"the rate allows {most:g}"
                )
