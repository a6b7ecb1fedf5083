"""The laws of an index hold for one that is evidently right, and find each one that is not."""

from collections.abc import Sequence

import pytest

from jackfield.core.api import Chain
from jackfield.core.testing.index_hostile import (
    HOSTILE,
    HostileConfig,
    HostileIdentity,
    RaisesOnInsert,
)
from jackfield.core.testing.index_laws import check_churn, check_index, check_walk
from jackfield.core.testing.naive_index import NaiveIndex
from jackfield.plugins.cache.prefix import HashChain


def test_the_laws_hold_for_what_is_right() -> None:
    for seed in range(3):
        check_walk(NaiveIndex, seed, 100)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_laws_find_every_hostile_index(name: str) -> None:
    with pytest.raises((AssertionError, RuntimeError, TypeError)):
        check_index(HOSTILE[name], seeds=1)


class ParentBlind(HashChain):
    """Takes blocks of one space and key for one, whatever is before them."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        known = {(space, key): block for (_, space, key), block in self._blocks.items()}
        found: list[int] = []
        for index in range(start, len(chain)):
            space = next(space for end, space in chain.spaces if index < end)
            if (space, chain.key(index)) not in known:
                break
            found.append(known[space, chain.key(index)])
        return found


class Hoarder(HashChain):
    """Keeps what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[bytes] = []

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        super().insert(block, parent, space, key, tokens)
        self._seen.append(key)


def test_the_laws_find_an_index_that_looks_at_keys_only() -> None:
    with pytest.raises(AssertionError):
        check_index(lambda size: ParentBlind(), seeds=5)


def test_the_laws_find_what_is_kept() -> None:
    with pytest.raises(AssertionError, match="bytes are kept"):
        check_churn(lambda size: Hoarder())


def test_a_hostile_plugin_makes_the_index_that_it_is_told() -> None:
    plugin = HostileIdentity(HostileConfig(index="RaisesOnInsert"))
    assert isinstance(plugin.identity(16), RaisesOnInsert)
