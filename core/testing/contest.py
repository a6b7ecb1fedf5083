"""Two classes that compete for an engine: the claims of fair shares, and of none for idling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from jackfield.core.api import Extent, NoCreditForIdle, RequestContext, WeightedFair
from jackfield.core.engine.request import Request
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import GREEDY, Sizes, request
from jackfield.core.testing.lives import EOS, TENANTS, start
from jackfield.core.testing.stacks import Factory
from jackfield.core.testing.stories import sizes
from jackfield.core.testing.watch import Watch

STEPS = 120
IDLE_STEPS = 80
ROUNDING = 1e-6


@dataclass(frozen=True)
class Side:
    """One class, and what each of its requests asks for."""

    name: str
    prompt: int
    answer: int


@dataclass(frozen=True)
class Contest:
    """Both always have requests waiting; the second begins after so many steps."""

    sizes: Sizes
    first: Side
    second: Side
    second_begins: int

    @property
    def extent(self) -> Extent:
        """Of the engine and the requests."""
        longest = max(self.first.prompt, self.second.prompt)
        answer = max(self.first.answer, self.second.answer)
        pool = self.sizes.num_blocks * self.sizes.block_size
        at_once = min(pool, self.sizes.max_seqs * (longest + answer))
        return Extent(longest, answer, at_once, self.sizes.max_tokens, self.sizes.overlap)


@st.composite
def contests(draw: st.DrawFn, claim: WeightedFair) -> Contest:
    """A strategy for contests between classes whose weights the claim knows."""
    names = list(dict.fromkeys((*TENANTS, *claim.weights)))
    first, second = draw(st.permutations(names))[:2]
    begins = IDLE_STEPS if isinstance(claim, NoCreditForIdle) else 0
    return Contest(draw(sizes(share=0.0)), draw(side(first)), draw(side(second)), begins)


def side(name: str) -> Any:
    """A strategy for what the class asks for."""
    return st.builds(
        Side, st.just(name), prompt=st.integers(1, 12), answer=st.integers(1, 9)
    )


def compete(make: Factory, contest: Contest, claim: WeightedFair) -> None:
    """Raises `AssertionError` when the claim is wrong."""
    bound = claim.bound(contest.extent) if callable(claim.bound) else claim.bound
    clock = ManualClock()
    meter = Meter(start(make, contest.sizes, clock), claim)
    leads = [0.0]
    for step in range(contest.second_begins + STEPS):
        both = step >= contest.second_begins
        for side in (contest.first, contest.second) if both else (contest.first,):
            meter.fill(side, contest.sizes.max_seqs + 2)
        clock.advance(0.01)
        before = meter.lead(contest)
        meter.step()
        if both:
            leads = leads if step > contest.second_begins else [before]
            leads.append(meter.lead(contest))
            _check(claim, contest, leads, bound)


def _check(claim: WeightedFair, contest: Contest, leads: Sequence[float], bound: float) -> None:
    """leads: by how much the first was ahead after each step."""
    gain = max(leads) - leads[-1]
    names = f"{contest.second.name} gained {gain:g} weighted tokens on {contest.first.name}"
    assert gain <= bound + ROUNDING, f"{names}; the claim is {bound:g}"
    if not isinstance(claim, NoCreditForIdle):
        loss = leads[-1] - min(leads)
        names = f"{contest.first.name} gained {loss:g} weighted tokens on {contest.second.name}"
        assert loss <= bound + ROUNDING, f"{names}; the claim is {bound:g}"


class Meter:
    """Service of each class by the furthest position that each request ever reached."""

    def __init__(self, watch: Watch, claim: WeightedFair) -> None:
        self._watch = watch
        self._claim = claim
        self._open: dict[Request, int] = {}
        self._served: dict[str, float] = {}
        self._count = 0

    def fill(self, side: Side, depth: int) -> None:
        """Let so many of the class wait."""
        waiting = self._watch.engine.lifecycle.valve.requests()
        for _ in range(depth - sum(one.context.tenant == side.name for one in waiting)):
            name = f"r{self._count}"
            context = RequestContext(tenant=side.name, tier=side.name)
            params = GREEDY.with_(max_tokens=side.answer, ignore_eos=True)
            self._watch.add(request(name, [1] * side.prompt, params, context=context), EOS)
            self._open.update(dict.fromkeys(self._watch.engine._requests[name], 0))
            self._count += 1

    def step(self) -> None:
        """One step, and what it served."""
        self._watch.step()
        for one, before in list(self._open.items()):
            after = max(before, one.computed)
            prompt = min(after, len(one.prompt)) - min(before, len(one.prompt))
            price = self._claim.prefill * prompt + self._claim.decode * (after - before - prompt)
            self._served[one.context.tenant] = self._served.get(one.context.tenant, 0.0) + price
            self._open[one] = after
            if one.is_done:
                del self._open[one]

    def lead(self, contest: Contest) -> float:
        """By how many weighted tokens the first class is ahead."""
        return self._weighted(contest.first.name) - self._weighted(contest.second.name)

    def _weighted(self, name: str) -> float:
        return self._served.get(name, 0.0) / self._claim.weights.get(name, 1.0)
