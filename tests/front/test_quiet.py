"""While many requests are taken in and run, collections of garbage look at little, and seldom."""

import gc
from collections.abc import Iterator

import pytest

from jackfield.core.front.quiet import YOUNG, quiet


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    assert not gc.get_freeze_count()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_is_there_is_left_out_meanwhile() -> None:
    gc.set_threshold(700, 10, 5)
    kept = [[] for _ in range(10)]  # type: ignore[var-annotated]
    with quiet() as leave_out:
        before = gc.get_freeze_count()
        assert before > len(kept) and gc.get_threshold() == (YOUNG, 10, 5)
        more = [[] for _ in range(1000)]  # type: ignore[var-annotated]
        leave_out()
        assert gc.get_freeze_count() >= before + len(more)
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == (700, 10, 5)


def test_it_ends_with_an_error_too() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), quiet():
        raise KeyError
    assert gc.get_freeze_count() == 0 and gc.get_threshold() == before


@pytest.mark.parametrize("first", [0, 10 * YOUNG])
def test_collections_come_never_more_often(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    with quiet():
        assert gc.get_threshold() == (first, 10, 10)


def test_what_somebody_else_has_frozen_stays_so() -> None:
    before = gc.get_threshold()
    gc.freeze()
    count = gc.get_freeze_count()
    with quiet() as leave_out:
        leave_out()
        assert gc.get_threshold() == before
    assert gc.get_freeze_count() == count
