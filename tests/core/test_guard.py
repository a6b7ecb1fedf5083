"""Calls into plugins are contained, counted, and stopped after some faults."""

from collections.abc import Iterator
from typing import Any

import pytest

from jackfield.core.engine import guard as module
from jackfield.core.engine.guard import SLOW_WINDOW, WINDOW, Guard, OutOfContract, shown


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def broken(*arguments: Any) -> None:
    raise ValueError("no")


def test_an_answer_passes() -> None:
    guard = Guard("p", 3, 1.0)
    assert guard.call(0, lambda a, b: a + b, 1, 2) == 3
    assert guard.faults == 0 and not guard.off and guard.last_fault is None


def test_an_exception_becomes_the_default_and_a_fault() -> None:
    guard = Guard("p", 3, 1.0)
    assert guard.call("default", broken) == "default"
    assert guard.faults == 1
    assert guard.last_fault == "broken raised ValueError('no')"


def test_a_check_that_refuses_is_a_fault_too() -> None:
    def refuse(answer: Any) -> Any:
        raise OutOfContract(f"returned {shown(answer)}, which is wrong")

    guard = Guard("p", 3, 1.0)
    assert guard.ask(None, refuse, lambda: 7) is None
    assert guard.last_fault == "<lambda> returned 7, which is wrong"


def test_an_exception_that_cannot_be_printed_is_contained() -> None:
    def nasty() -> None:
        raise Unprintable

    guard = Guard("p", 3, 1.0)
    assert guard.call(1, nasty) == 1
    assert guard.last_fault == "nasty raised an unprintable Unprintable"


def test_what_is_shown_is_short() -> None:
    assert len(shown("x" * 10_000)) < 300


def test_off_after_so_many_faults_in_the_window() -> None:
    guard = Guard("p", 3, 1.0)
    for _ in range(2):
        guard.call(None, broken)
    assert not guard.off
    guard.call(None, broken)
    assert guard.off
    guard.call(None, broken)
    assert guard.off and guard.faults == 4


def test_rare_faults_do_not_switch_off() -> None:
    guard = Guard("p", 2, 1.0)
    guard.call(None, broken)
    for _ in range(WINDOW):
        guard.call(None, int)
    guard.call(None, broken)
    assert not guard.off
    guard.call(None, broken)
    assert guard.off


def test_a_slow_call_keeps_its_answer_and_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = iter([0.0, 5.0, 5.0])
    monkeypatch.setattr(module, "perf_counter", lambda: next(ticks))
    guard = Guard("p", 3, 0.001)
    assert guard.call(None, lambda: 42) == 42
    assert (guard.faults, guard.slow_calls) == (1, 1)
    assert guard.last_fault is not None and "5000.0 ms" in guard.last_fault


@pytest.mark.parametrize(("calls_between", "off"), [(SLOW_WINDOW - 2, True), (SLOW_WINDOW, False)])
def test_only_calls_that_are_slow_again_and_again_switch_off(
    monkeypatch: pytest.MonkeyPatch, calls_between: int, off: bool
) -> None:
    """A stop of the whole process falls into some call; that plugin is not to blame."""
    clock = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: clock[0])

    def stops() -> None:
        clock[0] += 0.2

    guard = Guard("p", 2, 0.1)
    guard.call(None, stops)
    for _ in range(calls_between):
        guard.call(None, int)
    guard.call(None, stops)
    assert (guard.faults, guard.off) == (2, off)


def test_slow_calls_do_not_add_to_other_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = iter([0.0, 5.0, 5.0, *[6.0] * 9])
    monkeypatch.setattr(module, "perf_counter", lambda: next(ticks))
    guard = Guard("p", 2, 0.1)
    guard.call(None, int)
    guard.call(None, broken)
    assert (guard.faults, guard.off) == (2, False)
    guard.call(None, broken)
    assert guard.off


def test_an_interrupt_of_the_user_passes() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Guard("p", 3, 1.0).call(None, interrupted)
