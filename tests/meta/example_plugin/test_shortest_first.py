"""The policy on the real core, with the checks that come with Jackfield."""

from collections.abc import Callable
from typing import Any

import pytest
from jackfield_shortest_first import ShortestFirst, ShortestFirstConfig
from pydantic import ValidationError

from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, absorb, context_for, make_engine, request


def test_keeps_its_contract(check_scheduler: Callable[[type[Any]], None]) -> None:
    check_scheduler(ShortestFirst)


def finished(seconds_per_token: float, pause: float) -> list[str]:
    """Who finishes in which order: a long prompt arrives first, a short one after a pause."""
    clock, sizes = ManualClock(), Sizes(max_seqs=1)
    config = ShortestFirstConfig(seconds_per_token=seconds_per_token)
    policy = ShortestFirst(config, context_for(sizes, clock))
    engine = make_engine(sizes, disciplines=[policy], clock=clock)
    engine.add(request("long", range(40)))
    clock.advance(pause)
    engine.add(request("short", range(2)))
    answers: dict[Any, Any] = {}
    while engine.has_work:
        absorb(answers, engine.step())
    return [name for name, _ in answers]


def test_a_short_prompt_passes_a_long_one() -> None:
    assert finished(seconds_per_token=0.1, pause=1.0) == ["short", "long"]


def test_a_long_prompt_is_not_passed_for_ever() -> None:
    assert finished(seconds_per_token=0.1, pause=5.0) == ["long", "short"]


def test_a_negative_handicap_is_refused() -> None:
    with pytest.raises(ValidationError, match="seconds_per_token"):
        ShortestFirstConfig(seconds_per_token=-1)
