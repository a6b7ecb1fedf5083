"""The kit accepts policies that use all that a discipline can do, and finds those that cheat."""

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from jackfield.core.api import ClassState, Discipline, PolicyConfig, RequestView, Work
from jackfield.core.engine.window import Windows
from jackfield.core.testing.conformance import check_scheduler
from jackfield.core.testing.tree_laws import check_order


class Metered(Discipline[float]):
    """Tenants pay with time for what they were given."""

    def classify(self, request: RequestView) -> Hashable:
        return request.context.tenant

    def charge(self, cls: ClassState[float], work: Work) -> None:
        paid = max(cls.state or 0.0, self.context.now())
        cls.state = paid + 0.01 * (work.prefill + work.decode)

    def eligible_at(self, cls: ClassState[float], now: float) -> float:
        return cls.state or 0.0


class MostCached(Discipline[None]):
    """Among eight the one with the most tokens in the cache; asks all keys again now and then."""

    lookahead = 8

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        self.context.rekey(heads[-1])
        cached = [self.context.cached_tokens(one) for one in heads]
        seconds = self.context.predict.step_seconds(1, 1, 1)
        assert seconds is None or seconds >= 0
        return cached.index(max(cached))


def stack(*policies: type[Discipline[Any]]) -> Any:
    return lambda context: [one(PolicyConfig(), context) for one in policies]


@pytest.mark.parametrize("policies", [(Metered,), (MostCached,), (Metered, MostCached)])
def test_the_kit_accepts(policies: tuple[type[Discipline[Any]], ...]) -> None:
    check_scheduler(stack(*policies), examples=4, steps=25)


def test_the_kit_finds_a_choice_outside_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    def last(self: Windows, leaf: Any, now: float) -> Any:
        return max(leaf.queue.items(), key=lambda one: one.handle, default=None)

    monkeypatch.setattr(Windows, "first", last)
    with pytest.raises(AssertionError, match="that have lower keys"):
        check_order(stack(MostCached))
