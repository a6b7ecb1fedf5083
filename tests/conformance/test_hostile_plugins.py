"""Every hook times every misbehaviour, in a stack with a good policy: nobody but the hostile plugin
notices.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from jackfield.core.api import Discipline, PolicyConfig, PolicyContext
from jackfield.core.engine import guard as guard_module
from jackfield.core.engine.decisions import Action
from jackfield.core.testing.hostile import NAME, Case, catalogue
from jackfield.core.testing.lives import TIGHT, life
from jackfield.core.testing.watch import Watch
from jackfield.plugins.schedulers.fairness import Fairness, FairnessConfig
from jackfield.plugins.schedulers.fcfs import Fcfs
from jackfield.plugins.schedulers.long_prefill_throttle import (
    LongPrefillThrottle,
    LongPrefillThrottleConfig,
)

SIZES = replace(TIGHT, hook_budget=0.01, num_blocks=12, max_seqs=6, park_timeout=2.0)


class Time:
    """The clock of the guards; it moves when a plugin says that it was slow."""

    now = 0.0

    def burn(self, seconds: float) -> None:
        self.now += seconds


TIME = Time()
CASES = catalogue(TIME.burn)


@pytest.fixture(autouse=True)
def guards_have_their_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "perf_counter", lambda: TIME.now)


class Beside:
    """Stacks of the good policies, with and without the hostile one."""

    def __init__(self, case: Case | None = None) -> None:
        self._case = case
        self.hostile: Any = None

    def disciplines(self, context: PolicyContext) -> list[Any]:
        fair: Discipline[Any] = Fairness(FairnessConfig(), context)
        leaf: Discipline[Any] = Fcfs(PolicyConfig(), context)
        if self._case is None or self._case.is_advisor:
            return [fair, leaf]
        self.hostile = self._case.make(context)
        return [fair, self.hostile] if self._case.is_leaf else [self.hostile, fair, leaf]

    def advisors(self, context: PolicyContext) -> Mapping[str, Any]:
        good = LongPrefillThrottle(LongPrefillThrottleConfig(threshold=3), context)
        if self._case is None or not self._case.is_advisor:
            return {"good": good}
        self.hostile = self._case.make(context)
        return {"good": good, NAME: self.hostile}

    def live(self, overlap: int = 0, steps: int = 60) -> Watch:
        def hand_over(watch: Watch) -> None:
            if self.hostile is not None:
                self.hostile.engine = watch.engine

        sizes = replace(SIZES, overlap=overlap)
        return life(
            self.disciplines, sizes, steps=steps, make_advisors=self.advisors, prepare=hand_over
        )


def tokens(watch: Watch) -> dict[Any, list[int]]:
    return {key: one.tokens for key, one in watch.answers.items() if not one.aborted}


@pytest.fixture(scope="module")
def undisturbed() -> dict[Any, list[int]]:
    return tokens(Beside().live())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nobody_notices(case: Case, undisturbed: dict[Any, list[int]]) -> None:
    """The watch compares every answer with the right one after every step."""
    watch = Beside(case).live()
    counts, off = watch.engine.fault_counts(), watch.engine.faults()
    assert set(counts) == ({NAME} if case.is_fault else set())
    logged = [one for one in watch.engine.log._ring if one.action is Action.FAULT]
    assert set(off) == set(counts)
    if case.is_fault:
        assert off[NAME] and [one.plugin for one in logged] == [NAME]
    if not case.what.startswith("defers"):
        found = tokens(watch)
        both = found.keys() & undisturbed.keys()
        assert len(both) > 20
        assert all(found[key] == undisturbed[key] for key in both)


def test_everything_is_tried() -> None:
    """Whatever a plugin can implement is in the catalogue, and each case has its own name."""
    from jackfield.core.api import SchedulerHooks
    from jackfield.core.engine.level import METHODS

    hooks = {name for name in vars(SchedulerHooks) if not name.startswith("_")}
    assert {case.hook for case in CASES} == {*METHODS, *hooks}
    assert len({str(case) for case in CASES}) == len(CASES)


def test_the_time_of_a_slow_one_can_be_real() -> None:
    spent: list[float] = []
    burn: Callable[[float], None] = spent.append
    slow = next(case for case in catalogue(burn) if case.what == "is over its budget")
    slow.behaviour()(None, None)
    assert spent == [0.05]
