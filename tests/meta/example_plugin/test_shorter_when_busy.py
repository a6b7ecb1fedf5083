"""The advisor on the real core."""

from collections.abc import Callable
from typing import Any

import pytest
from jackfield_shorter_when_busy import ShorterWhenBusy, ShorterWhenBusyConfig
from pydantic import ValidationError

from jackfield.core.testing.clock import ManualClock
from jackfield.core.testing.engines import Sizes, context_for, make_engine, request, run


def test_keeps_its_contract(check_scheduler: Callable[..., None]) -> None:
    config = ShorterWhenBusyConfig(waiting=1, most=2)
    check_scheduler(lambda context: [ShorterWhenBusy(config, context)])


def test_answers_are_shorter_while_others_wait() -> None:
    sizes, clock = Sizes(max_seqs=1), ManualClock()
    policy = ShorterWhenBusy(ShorterWhenBusyConfig(waiting=2, most=3), context_for(sizes, clock))
    engine = make_engine(sizes, advisors={"busy": policy}, clock=clock)
    for name in ("first", "second", "third"):
        engine.add(request(name, [1, 2]))
    engine.step()
    engine.add(request("late", [1, 2]))
    lengths: dict[str, int] = {name: len(one.tokens) for (name, _), one in run(engine).items()}
    assert lengths["late"] == 3 and lengths["third"] == 8


def test_no_tokens_at_all_are_refused() -> None:
    settings: dict[str, Any] = {"most": 0}
    with pytest.raises(ValidationError, match="most"):
        ShorterWhenBusyConfig(**settings)
