"""An engine of another process that has no requests, but transfers under way."""

import socket
from typing import Any

import pytest

from jackfield.core.engine.transferring import LONGEST_WAIT
from jackfield.core.process.channel import Channel
from jackfield.core.process.service import Service


class Resting:
    """An engine without requests, whose transfer ends when somebody looks the second time."""

    has_work = False
    end = None

    def __init__(self) -> None:
        self.looks = 0

    @property
    def has_transfers(self) -> bool:
        return self.looks < 2

    def end_transfers(self) -> None:
        self.looks += 1


class Watch:
    def begin(self) -> None: ...

    def end(self) -> None: ...


@pytest.fixture
def ends() -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours)


def test_it_looks_after_transfers_until_they_have_ended(ends: Channel) -> None:
    """Nobody has to send anything for it."""
    engine: Any = Resting()
    watch: Any = Watch()
    service = Service(engine, lambda: 0.0, ends, watch)  # type: ignore[arg-type]
    for looks in (1, 2):
        assert service._patience() == LONGEST_WAIT
        service._turn()
        assert engine.looks == looks
    assert service._patience() is None
