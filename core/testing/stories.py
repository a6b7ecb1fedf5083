"""Lives that a person can read: who arrives when, and asks for what."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

from jackfield.core.api import RequestContext, RequestError, SamplingParams
from jackfield.core.engine.messages import NewRequest
from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes
from jackfield.core.testing.inspectors import Inspector
from jackfield.core.testing.lives import EOS, IDS, TENANTS, Advisors, start
from jackfield.core.testing.stacks import Factory
from jackfield.core.testing.watch import Watch

NEVER = -1


class Arrival(NamedTuple):
    """One request. steps, seconds: that pass before it. due: seconds after its arrival.

    leaves: steps after its arrival in which its caller gives it up; -1 = never.
    """

    steps: int = 0
    seconds: float = 0.0
    tenant: str = TENANTS[0]
    priority: int = 0
    due: float | None = None
    prompt: int = 1
    answer: int = 1
    answers: int = 1
    leaves: int = NEVER

    def __repr__(self) -> str:
        told = {
            name: value
            for name, value in self._asdict().items()
            if value != Arrival._field_defaults[name]
        }
        return f"Arrival({', '.join(f'{name}={value!r}' for name, value in told.items())})"


@dataclass(frozen=True)
class Story:
    """An engine of some size and all who come to it; then everybody's end."""

    sizes: Sizes
    arrivals: Sequence[Arrival]


def arrivals(max_prompt: int = 12, max_answer: int = 9, answers: bool = True) -> Any:
    """A strategy for single arrivals."""
    return st.builds(
        Arrival,
        steps=st.integers(0, 3),
        seconds=st.sampled_from([0.0, 0.5, 20.0]),
        tenant=st.sampled_from(TENANTS),
        priority=st.integers(0, 2),
        due=st.none() | st.sampled_from([0.0, 1.0, 30.0]),
        prompt=st.integers(1, max_prompt),
        answer=st.integers(1, max_answer),
        answers=st.integers(1, 3) if answers else st.just(1),
        leaves=st.sampled_from([NEVER, NEVER, 0, 3]) if answers else st.just(NEVER),
    )


def sizes(**fixed: Any) -> Any:
    """A strategy for engines that are small enough to be full."""
    drawn: dict[str, Any] = {
        "num_blocks": st.integers(12, 24),
        "block_size": st.integers(2, 3),
        "max_tokens": st.integers(4, 16),
        "max_seqs": st.integers(1, 4),
        "max_model_len": st.just(24),
        "share": st.sampled_from([0.0, 0.1]),
        "overlap": st.integers(0, 2),
    }
    return st.builds(Sizes, **{**drawn, **{name: st.just(one) for name, one in fixed.items()}})


def stories(**fixed: Any) -> Any:
    """A strategy for lives of all kinds. fixed: sizes that are not drawn."""
    return st.builds(Story, sizes=sizes(**fixed), arrivals=st.lists(arrivals(), max_size=24))


def play(
    make_policies: Factory,
    story: Story,
    inspectors: Sequence[Inspector] = (),
    make_advisors: Advisors | None = None,
) -> Watch:
    """Lead an engine with these policies through the story, to everybody's end.

    Raises `AssertionError` when a law is broken: one that the watch knows, or an inspector.
    """
    clock = ManualClock()
    watch = start(make_policies, story.sizes, clock, make_advisors)
    watch.inspectors += inspectors
    leaving: list[tuple[int, str]] = []
    now = 0
    for number, arrival in enumerate(story.arrivals):
        for _ in range(arrival.steps):
            now += 1
            _leave(watch, leaving, now)
            watch.step()
        clock.advance(arrival.seconds)
        if _add(watch, number, arrival, clock.now()) and arrival.leaves != NEVER:
            leaving.append((now + arrival.leaves, f"r{number}"))
    _leave(watch, leaving, now + 99)
    watch.drain()
    return watch


def _add(watch: Watch, number: int, arrival: Arrival, now: float) -> bool:
    context = RequestContext(
        tenant=arrival.tenant,
        tier=arrival.tenant,
        priority=arrival.priority,
        deadline=None if arrival.due is None else now + arrival.due,
    )
    params = SamplingParams(
        temperature=0.0, n=arrival.answers, max_tokens=arrival.answer, ignore_eos=True
    )
    prompt = [(number + place) % (IDS - 1) for place in range(arrival.prompt)]
    new = NewRequest(f"r{number}", prompt, params, context)
    try:
        watch.engine.validate(new)
    except RequestError:
        return False
    watch.add(new, EOS)
    return True


def _leave(watch: Watch, leaving: list[tuple[int, str]], now: int) -> None:
    due = [one for one in leaving if one[0] <= now]
    for one in due:
        leaving.remove(one)
        watch.abort(one[1])
