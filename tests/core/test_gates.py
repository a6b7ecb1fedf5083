"""Parked requests: each is woken once, by whoever comes first."""

import pytest

from jackfield.core.engine.gates import Gate, Gates
from jackfield.core.engine.request import Request
from jackfield.core.engine.tally import Tally
from jackfield.core.testing.tree_laws import make_request


@pytest.fixture
def woken() -> list[Request]:
    return []


def gate(woken: list[Request]) -> Gate:
    return Gate("because", "somebody", woken.append, 0.0)


def test_due_gives_who_is_due_once_in_order(woken: list[Request]) -> None:
    gates = Gates(Tally())
    first, second, third = (make_request(n) for n in range(3))
    for request, until in ((first, 3.0), (second, 1.0), (third, 2.0)):
        gates.park(request, gate(woken), until)
    assert gates.next_alarm() == 1.0
    assert gates.due(2.0) == [second, third]
    assert gates.due(2.0) == []
    assert len(gates) == 3 and not woken
    assert gates.next_alarm() == 3.0


def test_wake_resumes_once(woken: list[Request]) -> None:
    gates, request = Gates(Tally()), make_request(0)
    gates.park(request, gate(woken), 5.0)
    assert request in gates and gates.why(request) is not None
    assert gates.wake(request) and not gates.wake(request)
    assert woken == [request]
    assert gates.next_alarm() is None and gates.due(10.0) == []


def test_parking_again_moves_the_alarm(woken: list[Request]) -> None:
    gates, request = Gates(Tally()), make_request(0)
    gates.park(request, gate(woken), 1.0)
    gates.park(request, gate(woken), 9.0)
    assert gates.due(5.0) == [] and len(gates) == 1
    assert gates.due(9.0) == [request]


def test_remove_wakes_nobody(woken: list[Request]) -> None:
    gates, request = Gates(Tally()), make_request(0)
    gates.park(request, gate(woken), 1.0)
    assert gates.remove(request) is not None
    assert gates.remove(request) is None
    assert not woken and gates.requests() == [] and gates.due(2.0) == []
