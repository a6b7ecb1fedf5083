"""Who serves the sum over ranks with what follows it, and who hears that ranks have gone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jackfield.core.api import JOINED, OPTIONAL_OPERATIONS, RANK_OPERATIONS, Ranks, Shard
from jackfield.core.engine.operations import uncapturable
from jackfield.core.executors.place import ALONE, Place
from jackfield.core.process.rank_group import RankGroup
from jackfield.plugins.models.blocks.ranks import SummedAddRmsNorm, summed

NAME = "all_reduce_add_rms_norm"


@pytest.fixture(scope="module")
def rules(load_module: Callable[[Path], ModuleType]) -> ModuleType:
    """The helpers that bind tables of made-up plugins."""
    return load_module(Path(__file__).with_name("test_shards_rules.py"))


def offered(rules: ModuleType, *names: str) -> dict[str, Any]:
    return {name: rules.Joining() for name in names}


def test_it_is_bound_and_joined_where_one_plugin_serves_all_of_it(rules: ModuleType) -> None:
    own = offered(rules, "all_reduce", "all_gather", NAME)
    plugin, ranks = rules.Plugin(**rules.plain(), **own), Ranks(0, 2)
    found = rules.table(ranks, plugin)
    assert found.operations.all_reduce_add_rms_norm is own[NAME]
    assert all(own[name].joined == [ranks] for name in JOINED)
    assert NAME not in rules.table(None, plugin).owners
    assert NAME not in uncapturable(found, 4, 64)


def test_nobody_must_provide_it(rules: ModuleType) -> None:
    collectives = offered(rules, "all_reduce", "all_gather")
    found = rules.table(Ranks(0, 2), rules.Plugin(**rules.plain(), **collectives))
    assert found.operations.all_reduce_add_rms_norm is None
    assert NAME in RANK_OPERATIONS and NAME not in OPTIONAL_OPERATIONS


@pytest.mark.parametrize("other", ["all_reduce", "add_rms_norm"])
def test_it_stands_for_nobody_elses_operation(rules: ModuleType, other: str) -> None:
    first = rules.Plugin(**offered(rules, other))
    rest = offered(rules, "all_reduce", "all_gather", NAME)
    found = rules.table(Ranks(0, 2), first, rules.Plugin(**rules.plain(), **rest))
    assert found.operations.all_reduce_add_rms_norm is None
    (passed,) = [each for each in found.passed if each.operation == NAME]
    assert passed.reasons == (f"'plugin 0' serves {other}, and it stands for that, too",)
    assert rest[NAME].joined == []


def test_models_take_it_where_it_is(divided: ModuleType) -> None:
    ops = replace(divided.operations(), all_reduce=object(), all_gather=object())
    joint = object()
    whole = replace(ops, all_reduce_add_rms_norm=joint)
    assert summed(whole, Shard(0, 2)).add_rms_norm is joint
    assert summed(whole, Shard()).add_rms_norm is ops.add_rms_norm
    assert isinstance(summed(ops, Shard(0, 2)).add_rms_norm, SummedAddRmsNorm)


def test_ranks_know_their_hosts() -> None:
    assert ALONE.ranks is None
    place = Place(Shard(5, 8), group="a group", local_size=4)
    assert place.ranks == Ranks(5, 8, "a group", 2)


def test_whoever_waits_for_others_hears_that_they_have_gone() -> None:
    said: list[str] = []
    link = SimpleNamespace(
        abort=lambda: said.append("abort"), leave=lambda: None, close=lambda: None
    )
    group = RankGroup(list, 1, watchdog=1.0, link=link)

    def breaks() -> None:
        said.append("first")
        raise RuntimeError

    group.when_lost(breaks)
    place = Place(Shard(0, 2), local_size=2, when_lost=group.when_lost)
    assert place.ranks is not None
    place.ranks.when_lost(lambda: said.append("second"))
    assert said == []
    group.fail("a rank died")
    assert said[:2] == ["first", "second"]
    group.when_lost(lambda: said.append("late"))
    group.stop()
    group.close(lambda: None)
    assert sorted(said[2:]) == ["abort", "late"]


def test_capturable(rules: ModuleType) -> None:
    one, other = rules.Joining(), rules.Joining()
    joint: Any = SummedAddRmsNorm(one, other)
    assert joint.capturable()
    other.capturable = lambda: False
    assert not joint.capturable()
