"""The laws notice evictors that break them, each by its number."""

from collections.abc import Sequence
from typing import Any

import pytest

from jackfield.core.api import BlockMeta, CacheAxis, EvictionSpace, Evictor, EvictorPlugin
from jackfield.core.testing import eviction_laws as laws
from jackfield.core.testing.eviction_hostile import HostileCase, hostile_evictors
from jackfield.core.testing.eviction_models import ListFifo, ListLru, ModelLfu

CASES = hostile_evictors()


class Good(EvictorPlugin):
    """A plain LRU."""

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        return ListLru()


class Remembers(ListLru):
    """Never forgets a content."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bytes, float]] = []

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        super().insert(blocks, metas, now)
        self.seen += [(meta.key, now) for meta in metas]


class Pops(ListLru):
    """Is changed by being asked."""

    def victims(self, count: int, now: float) -> Sequence[int]:
        chosen = super().victims(count, now)
        self.order = [one for one in self.order if one not in chosen] + list(chosen)
        return chosen


class Forgets(ListLru):
    """Takes a block that was removed for evictable when it comes back."""

    def remove(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.order.remove(block)


class Refuses(Evictor):
    """A wrapper that keeps pinned blocks at any price."""

    def __init__(self, inner: Evictor | None) -> None:
        super().__init__(inner)
        self.pinned: set[int] = set()

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        super().insert(blocks, metas, now)
        self.pinned.update(one for one, meta in zip(blocks, metas, strict=True) if meta.pinned)

    def victims(self, count: int, now: float) -> Sequence[int]:
        return [one for one in self.inner.victims(count, now) if one not in self.pinned]


class Reverses(Evictor):
    """A wrapper that turns the order round, whatever anybody asks for."""

    def victims(self, count: int, now: float) -> Sequence[int]:
        return list(self.inner.victims(10**6, now))[::-1][:count]


def plugin(make: Any, does_wrap: bool = False) -> EvictorPlugin:
    class Made(EvictorPlugin):
        wraps = does_wrap

        def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
            evictor: Evictor = make(inner) if does_wrap else make()
            return evictor

    return Made(Made.Config())


def test_a_good_evictor_passes() -> None:
    laws.check_evictor(Good, examples=3)
    laws.check_evictor(plugin(Evictor, does_wrap=True), examples=3)
    laws.check_release_order(Good)
    laws.check_no_hits_in_a_cycle(Good)
    laws.check_beats_fifo(Good)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_hostile_evictors_are_noticed(case: HostileCase) -> None:
    made = plugin(lambda: case.make(EvictionSpace("device", laws.CAPACITY), None))
    with pytest.raises(AssertionError, match=r"^E[134]: "):
        laws.check_evictor(made, examples=5)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("foreign", "E3"), ("removed", "E3"), ("busy", "E1"), ("duplicates", "E1"),
        ("nothing", "E1"), ("too few", "E1"), ("too many", "E1"), ("touch raises", "E4"),
        ("remove raises", "E4"), ("update raises", "E4"), ("evictable raises", "E4"),
        ("victims raises", "E4"), ("none", "E4"), ("lists", "E1"), ("floats", "E1"),
        ("endless", "E3"),
    ],
)  # fmt: skip
def test_failures_name_the_law(name: str, law: str) -> None:
    case = next(case for case in CASES if case.name == name)
    with pytest.raises(AssertionError, match=f"^{law}: "):
        for seed in range(5):
            laws.check_life(case.make, seed)


@pytest.mark.parametrize(
    ("make", "wraps", "law"),
    [
        (Remembers, False, "E2"), (Pops, False, "E1"), (Forgets, False, "E1"),
        (Refuses, True, "E1"), (Reverses, True, "E6"),
    ],
)  # fmt: skip
def test_subtle_faults_are_noticed(make: Any, wraps: bool, law: str) -> None:
    with pytest.raises(AssertionError, match=f"^{law}: "):
        laws.check_evictor(plugin(make, wraps), examples=10)


def test_other_policies_are_not_lru() -> None:
    with pytest.raises(AssertionError, match=r"^E5: "):
        laws.check_same_order(plugin(ListFifo), ListLru)
    with pytest.raises(AssertionError, match=r"^E5: "):
        laws.check_same_evictions(Good, ModelLfu)
    with pytest.raises(AssertionError, match=r"^E7: "):
        laws.check_beats_fifo(plugin(ListFifo))
    with pytest.raises(AssertionError, match=r"^E7: "):
        laws.check_no_hits_in_a_cycle(plugin(lambda: Reverses(ListLru())))
    with pytest.raises(AssertionError, match="order of release"):
        laws.check_release_order(plugin(lambda: Reverses(ListLru())))


def test_the_declaration_is_checked() -> None:
    class Elsewhere(Good):
        axis = CacheAxis.TIER

    class Shares(Good):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.only = ListLru()

        def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
            return self.only

    with pytest.raises(AssertionError, match="Elsewhere has the axis"):
        laws.check_evictor(Elsewhere)
    with pytest.raises(AssertionError, match="same evictor for two tiers"):
        laws.check_evictor(Shares(Shares.Config()))


def test_entries_are_counted_in_everything_that_an_object_leads_to() -> None:
    class Slotted:
        __slots__ = ("table",)

    class Holder:
        def __init__(self) -> None:
            self.numbers = [(1, 2), (3, 4)]
            self.slotted = Slotted()
            self.slotted.table = {"a": {1, 2, 3}, "b": self}

    assert laws.entries(Holder()) == 2 + 2 + 3
