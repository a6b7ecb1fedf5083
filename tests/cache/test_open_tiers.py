"""Tiers are what plugins say, once that was checked; a wrong one stops the start with its name."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from jackfield.core.api import (
    CacheAxis,
    CachePlugin,
    CapacityError,
    ConfigError,
    KvLayer,
    Move,
    MoveCandidate,
    MoveView,
    PluginConflict,
    PluginContractError,
    TierSpace,
    TierSpec,
    TierStore,
    hookimpl,
)
from jackfield.core.executors.tiers import TierHooks, open_stores, open_tiers, tier_specs
from jackfield.core.executors.transfers import NoTransfers
from jackfield.core.host.discover import Found
from jackfield.core.host.manager import Implementation, Manager
from jackfield.core.kv.copier import BlockCopier
from jackfield.core.testing.faulty_stores import MemoryStore

HOST, DISK = TierSpec("host", 4), TierSpec("disk", 9, checked=False)
SPACE = TierSpace(rank=1, block_bytes=64, num_slots=0, pinned=True)


def giving(answer: Any, plugin: str = "mine") -> Implementation:
    return Implementation(plugin, lambda *_: answer)


def raising(error: BaseException) -> Implementation:
    def call(*_: Any) -> Any:
        raise error

    return Implementation("mine", call)


def test_tiers_follow_in_the_order_of_the_plugins() -> None:
    far = TierSpec("far", 100)
    assert tier_specs([giving([HOST, DISK]), giving((far,), "other")], 64) == (HOST, DISK, far)
    assert tier_specs([giving([])], 64) == tier_specs([], 64) == ()


def test_the_hook_is_told_the_size_of_a_block() -> None:
    asked: list[int] = []
    tier_specs([Implementation("mine", lambda size: asked.append(size) or [])], 4096)
    assert asked == [4096]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "not a list of TierSpec"),
        (HOST, "not a list of TierSpec"),
        ("host", "not a list of TierSpec"),
        ([("host", 4)], "which is no TierSpec"),
        ([TierSpec("", 4)], "one word"),
        ([TierSpec("my tier", 4)], "one word"),
        ([TierSpec(3, 4)], "one word"),  # type: ignore[arg-type]
        ([TierSpec("device", 4)], "'device' is the name of the pool"),
        ([TierSpec("host", 0)], "1 or more"),
        ([TierSpec("host", 2.0)], "whole number"),  # type: ignore[arg-type]
        ([TierSpec("host", True)], "whole number"),
        ([TierSpec("host", 4, 1)], "True or False"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_tier_is_refused(answer: Any, message: str) -> None:
    with pytest.raises(PluginContractError, match=message) as caught:
        tier_specs([giving(answer)], 64)
    assert "'mine'" in str(caught.value)


def test_two_tiers_of_one_name_are_refused() -> None:
    with pytest.raises(PluginConflict, match="'host', of the plugins 'mine' and 'other'"):
        tier_specs([giving([HOST]), giving([HOST], "other")], 64)


@pytest.mark.parametrize("error", [ConfigError("too small"), CapacityError("too large")])
def test_our_own_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        tier_specs([raising(error)], 64)
    with pytest.raises(type(error), match=str(error)):
        open_stores([HOST], [raising(error)], SPACE)


def test_other_errors_name_the_plugin_and_the_hook() -> None:
    with pytest.raises(PluginContractError, match="'mine': tiers raised ZeroDivisionError: oh"):
        tier_specs([raising(ZeroDivisionError("oh"))], 64)
    with pytest.raises(PluginContractError, match="'mine': store raised SystemExit: 3"):
        open_stores([HOST], [raising(SystemExit(3))], SPACE)


def opener(name: str, make: Callable[[], Any], seen: list[Any] | None = None) -> Implementation:
    def store(asked: str, space: TierSpace) -> Any:
        if seen is not None:
            seen.append((asked, space))
        return make() if asked == name else None

    return Implementation(name, store)


def test_each_tier_is_opened_by_its_plugin_with_its_own_slots() -> None:
    host, disk, seen = MemoryStore(), MemoryStore(), list[Any]()
    openers = [opener("disk", lambda: disk), opener("host", lambda: host, seen)]
    assert open_stores([HOST, DISK], openers, SPACE) == {"host": host, "disk": disk}
    assert seen == [("host", TierSpace(1, 64, 4, True))]


def test_a_tier_that_nobody_opens_is_named_and_the_others_are_closed() -> None:
    host = MemoryStore()
    with pytest.raises(PluginContractError, match=r"nobody opens the tier 'disk'.*'host'"):
        open_stores([HOST, DISK], [opener("host", lambda: host)], SPACE)
    assert host.closed
    with pytest.raises(PluginContractError, match="no plugin has that hook"):
        open_stores([HOST], [], SPACE)


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(PluginContractError, match="it has no put, get, drop, close"):
        open_stores([HOST], [opener("host", object)], SPACE)


class Attic(CachePlugin):
    """A tier of somebody else, without a size."""

    axis = CacheAxis.TIER
    opened: MemoryStore

    @hookimpl
    def tiers(self, block_bytes: int) -> Sequence[TierSpec]:
        return [TierSpec("attic", 1000 // block_bytes)]

    @hookimpl
    def store(self, name: str, space: TierSpace) -> TierStore | None:
        self.opened, self.space = MemoryStore(), space
        return self.opened if name == "attic" else None

    @hookimpl
    def move(self, view: MoveView, byte_budget: int) -> Sequence[Move]:
        return [Move(one.block) for one in view.candidates if view.below == "attic"]


def test_a_plugin_of_somebody_else_brings_a_tier() -> None:
    manager, attic = Manager(), Attic(Attic.Config())
    manager.register(attic, Found("caches", "attic", "module:Attic", "dist", "1.0", 1, ""))
    hooks = TierHooks(manager.implementations("tiers"), manager.implementations("store"))
    copier = BlockCopier([KvLayer({"k": torch.zeros(5, 25)}, 1.0)], torch.device("cpu"))
    tiers = open_tiers(hooks, copier, 2, pinned=False)
    assert tiers.specs == (TierSpec("attic", 10),)
    assert attic.space == TierSpace(2, 100, 10, pinned=False)
    tiers.transfers.close()
    assert attic.opened.closed
    (move,) = manager.implementations("move")
    view = MoveView("device", "attic", 0, 0, 5, 10, 10, 100, [MoveCandidate(3, 0, False)])
    assert move.call(view, 100) == [Move(3)]


def test_without_plugins_there_are_no_tiers() -> None:
    copier = BlockCopier([KvLayer({"k": torch.zeros(5, 25)}, 1.0)], torch.device("cpu"))
    tiers = open_tiers(TierHooks(), copier, 0, pinned=False)
    assert tiers.specs == () and isinstance(tiers.transfers, NoTransfers)
