"""The two identity plugins find what is cached, keep nothing else, and cost little."""

import gc
import tracemalloc
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from jackfield.core.api import BlockIndex, CacheAxis, CachePlugin, Chain
from jackfield.core.kv.keys import block_keys, token_bytes
from jackfield.core.testing.index_laws import (
    SPACES,
    MakeIndex,
    add_chain,
    chain_of,
    check_depth,
    check_index,
    check_walk,
)
from jackfield.plugins.cache.prefix import Prefix
from jackfield.plugins.cache.radix import JOINED, Radix

KINDS: list[type[CachePlugin]] = [Prefix, Radix]
SPACE = SPACES[0]
NO_KEY = bytes(16)
BLOCK = 16


def maker(kind: type[CachePlugin]) -> MakeIndex:
    plugin: Any = kind(kind.Config())
    assert plugin.axis is CacheAxis.IDENTITY
    make: MakeIndex = plugin.identity
    return make


class EqualKeys:
    """An index in a world in which all hashes are equal."""

    def __init__(self, inner: BlockIndex) -> None:
        self._inner = inner

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        return self._inner.match(
            Chain(NO_KEY * len(chain), chain.tokens, chain.spaces), start, parent
        )

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        self._inner.insert(block, parent, space, NO_KEY, tokens)

    def remove(self, block: int) -> None:
        self._inner.remove(block)

    def __len__(self) -> int:
        return len(self._inner)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_indexes(kind: type[CachePlugin]) -> None:
    check_index(maker(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_long_sequences_do_not_overflow_a_stack(kind: type[CachePlugin]) -> None:
    make = maker(kind)
    check_depth(make, 30_000)
    index, depth = make(1), 100_000
    tokens = [1] * depth
    chain = Chain(block_keys(tokens, 1), token_bytes(tokens), ((depth, SPACE),))
    parent = None
    for block in range(depth):  # a branch before each block of the sequence
        index.insert(depth + block, parent, SPACE, NO_KEY, token_bytes([2]))
        index.insert(block, parent, SPACE, chain.key(block), token_bytes([1]))
        parent = block
    assert list(index.match(chain, 0, None)) == list(range(depth))
    del index
    gc.collect()


def test_a_tree_does_not_care_for_keys() -> None:
    for seed in range(5):
        check_walk(lambda size: EqualKeys(maker(Radix)(size)), seed, 200)


def test_equal_keys_cost_a_hash_chain_hits_only() -> None:
    """It answers with a block of other tokens, which the core sees, and forgets all the same."""
    index = EqualKeys(maker(Prefix)(1))
    for number in range(20):
        add_chain(index, chain_of([number, number], 1, [SPACE] * 2), 1, 2 * number)
    asked = chain_of([7, 7], 1, [SPACE] * 2)
    assert list(index.match(asked, 0, None)) == [0, 1]
    assert list(index.match(asked, 1, 14)) == [15], "the right parent leads to the right child"
    for block in reversed(range(40)):
        index.remove(block)
        assert 0 not in index.match(asked, 0, None) or block > 0
    assert len(index) == 0 and not index.match(asked, 0, None)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_parent_has_no_children(kind: type[CachePlugin]) -> None:
    index = maker(kind)(1)
    chain = chain_of([1, 2], 1, [SPACE] * 2)
    add_chain(index, chain, 1, 0)
    assert not index.match(chain, 1, 99)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_is_followed_up_to_the_block_that_differs(kind: type[CachePlugin]) -> None:
    """Wherever that is in a long run, and however many blocks are asked for."""
    index, size = maker(kind)(2), 70
    tokens = list(range(2 * size))
    add_chain(index, chain_of(tokens, 2, [SPACE] * size), 2, 100)
    for place in range(size):
        changed = tokens.copy()
        changed[2 * place + 1] += 1000
        found = index.match(chain_of(changed, 2, [SPACE] * size), 0, None)
        assert list(found) == list(range(100, 100 + place))
        shorter = chain_of(tokens[: 2 * place + 1], 2, [SPACE] * place)
        assert list(index.match(shorter, 0, None)) == list(range(100, 100 + place))


def test_branches_that_come_and_go_leave_runs_as_long_as_they_were() -> None:
    index: Any = maker(Radix)(1)
    size = JOINED
    chain = chain_of([1] * size, 1, [SPACE] * size)
    add_chain(index, chain, 1, 0)
    for block in range(size):
        index.insert(1000 + block, block, SPACE, NO_KEY, token_bytes([2]))
    assert len(set(map(id, index._runs.values()))) == 2 * size - 1
    for block in Random(0).sample(range(size), size):
        index.remove(1000 + block)
        assert list(index.match(chain, 0, None)) == list(range(size))
    assert len(set(map(id, index._runs.values()))) == 1


@pytest.mark.parametrize(
    ("kind", "chains", "length", "most"),
    [(Prefix, 200, 64, 300), (Prefix, 12_800, 1, 300), (Radix, 200, 64, 200),
     (Radix, 12_800, 1, 700)],
)  # fmt: skip
def test_bytes_per_block(kind: type[CachePlugin], chains: int, length: int, most: int) -> None:
    """Of 16 tokens, with keys and tokens; ids are counted at whoever made them."""
    make, random, total = maker(kind), Random(0), chains * length
    ids = iter(range(total))
    numbers = list(ids)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = make(BLOCK)
        for first in range(0, total, length):
            parent = None
            for block in numbers[first : first + length]:
                key, tokens = random.randbytes(16), random.randbytes(4 * BLOCK)
                index.insert(block, parent, SPACE, key, tokens)
                parent = block
        each = (tracemalloc.get_traced_memory()[0] - before) / total
    finally:
        tracemalloc.stop()
    assert len(index) == total
    assert 64 < each < most, f"{each:.0f} bytes per block"
