"""How the first rank leaves the others when what it asks to end hangs."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from jackfield.core.api import ConfigError, EngineStoppedError
from jackfield.core.process import rank_departure
from jackfield.core.process.rank_connect import (
    LOOPBACK,
    OWN_WATCH,
    Connection,
    disconnect,
    find_store,
    prepare_nccl,
)
from jackfield.core.process.rank_departure import Departure, in_thread
from jackfield.core.process.rank_group import RankGroup

SHORT = 0.2
LONG = 20.0
"""Whoever waits so long here waits for ever."""
CPU = torch.device("cpu")


class Library:
    """What connects ranks, in the manner of one whose kernels are in graphs: an abort has kernels
    end at once, and comes back when no graph holds collectives any more."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.kernels_ended = threading.Event()
        self.graphs_gone = threading.Event()
        self.left = threading.Event()
        self.left.set()

    def abort(self) -> None:
        self.kernels_ended.set()
        assert self.graphs_gone.wait(LONG)
        self.done.append("abort")

    def leave(self) -> None:
        assert self.left.wait(LONG)
        self.done.append("leave")

    def close(self) -> None:
        self.done.append("close")

    def drop(self) -> None:
        """The model with its graphs, once the device is done with them."""
        assert self.kernels_ended.wait(LONG)
        self.graphs_gone.set()
        self.done.append("drop")

    def let_all_go(self) -> None:
        for event in (self.kernels_ended, self.graphs_gone, self.left):
            event.set()


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    for name in ("LEAVE_SECONDS", "ABORT_SECONDS"):
        monkeypatch.setattr(f"jackfield.core.process.rank_departure.{name}", SHORT)
    library = Library()
    yield library
    library.let_all_go()


@pytest.fixture
def group(library: Library) -> RankGroup:
    return RankGroup(list, 1, watchdog=1.0, link=library)


def soon(work: Callable[[], Any]) -> Any:
    """What it gives; it must not wait for what never comes."""
    return in_thread("soon", work).result(LONG / 4)


def test_in_good_order_nothing_is_aborted(library: Library, group: RankGroup) -> None:
    library.kernels_ended.set()
    group.stop()
    soon(lambda: group.close(library.drop))
    assert library.done == ["drop", "leave", "close"]


def test_an_abort_that_waits_for_graphs_holds_nobody_up(library: Library, group: RankGroup) -> None:
    """Who waits for others learns of their end, and drops the graphs that it waits for."""
    soon(lambda: group.fail("a rank died"))
    with pytest.raises(EngineStoppedError, match="a rank died"):
        soon(lambda: group.stumbled(3))
    assert library.done == []
    soon(group.stop)
    soon(lambda: group.close(library.drop))
    assert library.done == ["drop", "abort", "leave", "close"]


def test_graphs_that_never_go_are_left_behind(
    library: Library, group: RankGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group.fail("a rank died")
    group.stop()
    soon(lambda: group.close(lambda: None))
    assert library.done == ["close"] and "it hangs" in caplog.text


@pytest.mark.parametrize("what", ["device", "group"])
def test_what_does_not_end_in_good_order_is_aborted(
    library: Library, group: RankGroup, what: str
) -> None:
    """As when a rank dies after it was told to stop: the device waits for it, or the group does."""
    told: list[str] = []
    group.when_lost(lambda: (told.append("lost"), library.left.set())[0])
    if what == "group":
        library.left.clear()
        library.kernels_ended.set()
    group.stop()
    soon(lambda: group.close(library.drop))
    assert library.kernels_ended.is_set() and told == ["lost"]
    assert library.done.index("drop") < library.done.index("leave")
    assert "abort" in library.done and library.done[-1] == "close"


def test_what_drops_the_model_may_raise(library: Library, group: RankGroup) -> None:
    def fails() -> None:
        raise ValueError("no such thing")

    group.stop()
    with pytest.raises(ValueError, match="no such thing"):
        soon(lambda: group.close(fails))
    assert library.done == ["leave", "close"]


def test_a_rank_that_fails_while_others_connect_is_told(library: Library, group: RankGroup) -> None:
    """The library waits for it for ever."""
    assert soon(lambda: group.meanwhile(lambda: 7)) == 7
    library.left.clear()
    connecting = in_thread("main", lambda: group.meanwhile(library.left.wait))
    group.fail("rank 1 could not start")
    with pytest.raises(EngineStoppedError, match="rank 1 could not start"):
        connecting.result(LONG / 4)


def test_who_cannot_connect_says_why(group: RankGroup) -> None:
    def refuse() -> None:
        raise ConfigError("there is a group already")

    with pytest.raises(ConfigError, match="there is a group already"):
        soon(lambda: group.meanwhile(refuse))


def test_a_start_that_fails_here_aborts(library: Library, group: RankGroup) -> None:
    library.graphs_gone.set()
    soon(group.give_up)
    soon(lambda: group.close(lambda: None))
    assert library.done == ["abort", "leave", "close"]


@pytest.fixture
def alone() -> Iterator[None]:
    """No group is left behind by a test that fails."""
    assert not dist.is_initialized()
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def test_only_the_own_group_is_left(alone: None) -> None:
    """Another may belong to somebody else in this process."""
    mine, other = Connection(LOOPBACK, 5.0), Connection(LOOPBACK, 5.0)
    group = mine.join(1, CPU, 1.0)
    other.abort()
    other.leave()
    other.close()
    assert dist.group.WORLD is group
    mine.abort()
    assert dist.group.WORLD is group  # gloo has nothing to abort
    mine.leave()
    assert not dist.is_initialized()


def test_who_waits_for_the_store_is_told(alone: None) -> None:
    connection = Connection(LOOPBACK, LONG)
    connection.join(1, CPU, 1.0)
    store = find_store(connection.where)
    waiting = in_thread("waits", lambda: store.get("never"))
    connection.abort()
    with pytest.raises(RuntimeError):
        waiting.result(LONG / 4)
    connection.leave()


def test_the_port_is_free_though_somebody_keeps_the_group(alone: None) -> None:
    connection = Connection(LOOPBACK, 5.0)
    group = connection.join(1, CPU, 1.0)
    connection.leave()
    connection.close()
    with socket.create_server((LOOPBACK, connection.where.port)):
        assert group is not None


def test_a_gpu_library_is_aborted_and_cannot_stand_in_the_way(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is broken may refuse to be destroyed."""
    connection, done = Connection(LOOPBACK, 5.0), []
    connection.join(1, CPU, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(dist, "get_backend", lambda _: "nccl")
        connection._group = SimpleNamespace(abort=lambda: done.append("abort"))
        connection.abort()

        def refuse() -> None:
            raise dist.DistBackendError("it was aborted")

        patch.setattr(dist, "destroy_process_group", refuse)
        connection.leave()
    assert done == ["abort"] and not dist.is_initialized()
    disconnect()  # nothing is there any more


def test_torch_leaves_the_end_of_ranks_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the whole process of whoever embeds an engine; unless somebody wants that."""
    first, second = OWN_WATCH
    for name in (first, second):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv(first)
    prepare_nccl()
    assert os.environ[first] == "0" and os.environ[second] == "1"


def test_an_abort_is_known_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever it lets go on waits for it before they leave."""
    known: list[bool] = []
    link: Any = SimpleNamespace(abort=lambda: known.append(departure._aborting is not None))
    departure = Departure(link)

    def thread(target: Callable[[], None], **_: Any) -> Any:
        return SimpleNamespace(start=target)  # which runs at once

    monkeypatch.setattr(rank_departure.threading, "Thread", thread)
    departure.abort()
    assert known == [True]
