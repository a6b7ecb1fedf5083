"""Laws of an index of blocks, checked against one that is slow and evidently right."""

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import count, groupby
from random import Random

from jackfield.core.api import KEY_BYTES, TOKEN_BYTES, BlockIndex, Chain
from jackfield.core.kv.keys import block_keys, token_bytes
from jackfield.core.testing.naive_index import Known, NaiveIndex, space_at

MakeIndex = Callable[[int], BlockIndex]
"""block_size -> a new, empty index: an `identity` hook."""
SPACES = tuple(bytes([number]) * KEY_BYTES for number in range(3))
ENDLESS = 2**31
LONGEST = 8
DEPTH = 5000
LEAK = 4096
"""Bytes that may differ between two moments at which an index is empty."""


def check_index(make: MakeIndex, *, seeds: int = 20, operations: int = 300) -> None:
    """All laws. Raises `AssertionError`."""
    for seed in range(seeds):
        check_walk(make, seed, operations)
    check_spaces(make)
    check_gap(make)
    check_depth(make, DEPTH)
    check_churn(make)


def chain_of(tokens: Sequence[int], block_size: int, spaces: Sequence[bytes]) -> Chain:
    """The full blocks of a sequence. spaces: one per block; the last one has no end."""
    parts: list[tuple[int, bytes]] = []
    for space, blocks in groupby(spaces):
        end = (parts[-1][0] if parts else 0) + len(list(blocks))
        parts.append((end, space))
    if parts:
        parts[-1] = (ENDLESS, parts[-1][1])
    return Chain(block_keys(tokens, block_size), token_bytes(tokens), tuple(parts))


class Walk:
    """The same random insertions, removals and look-ups on both indexes.

    Sequences have few tokens and few spaces, so that many of them part late, and some of them
    differ only in a space.
    """

    def __init__(self, make: MakeIndex, seed: int) -> None:
        self._random = Random(seed)
        self.block_size = self._random.choice((1, 2, 4))
        self.index = make(self.block_size)
        self.naive = NaiveIndex(self.block_size)
        self._ids = count(self._random.randrange(100))

    def chain(self) -> Chain:
        """A random sequence: a part that everybody may share, and one of somebody's own."""
        blocks = self._random.randint(0, LONGEST)
        tokens = self._random.choices((0, 1), (9, 1), k=blocks * self.block_size)
        cut = self._random.randint(0, blocks)
        own = self._random.choice(SPACES)
        return chain_of(tokens, self.block_size, [SPACES[0]] * cut + [own] * (blocks - cut))

    def publish(self) -> None:
        """All blocks of a sequence that are not known yet, the first one first."""
        chain = self.chain()
        parent = None
        for index, place in enumerate(places(chain, self.block_size)):
            block = self.naive.find(place._replace(parent=parent))
            if block is None:
                block = next(self._ids)
                for one in (self.index, self.naive):
                    one.insert(block, parent, place.space, chain.key(index), place.tokens)
            parent = block

    def evict(self) -> None:
        """One block that has no children."""
        if self.naive.leaves:
            block = self._random.choice(self.naive.leaves)
            self.index.remove(block)
            self.naive.remove(block)

    def compare(self) -> None:
        """A look-up from the start, and one behind each block that it has found."""
        chain = self.chain()
        expected = list(self.naive.match(chain, 0, None))
        starts = [*range(len(expected) + 1)] * 2  # asking changes nothing, also not later
        parents = [None, *expected]
        answers = [self.index.match(chain, start, parents[start]) for start in starts]
        for start, answer in zip(starts, answers, strict=True):
            assert list(answer) == expected[start:], (
                f"match from block {start} gives {list(answer)}, not {expected[start:]}"
            )
        assert len(self.index) == len(self.naive), "the number of blocks is wrong"


def places(chain: Chain, block_size: int) -> list[Known]:
    """Space and tokens of each block; no parents yet."""
    width = TOKEN_BYTES * block_size
    return [
        Known(None, space_at(chain, index), chain.tokens[index * width : (index + 1) * width])
        for index in range(len(chain))
    ]


def check_walk(make: MakeIndex, seed: int, operations: int) -> None:
    """Random operations, then everything is taken back."""
    walk = Walk(make, seed)
    random = Random(seed)
    for _ in range(operations):
        random.choice((walk.publish, walk.evict, walk.evict, walk.evict))()
        walk.compare()
    while len(walk.naive):
        walk.evict()
        walk.compare()
    assert len(walk.index) == 0, "an index without blocks has a length"


def check_spaces(make: MakeIndex) -> None:
    """Equal tokens in different spaces are different blocks, also behind a shared part."""
    index, tokens = make(2), [1, 2, 3, 4]
    a, b, c = SPACES
    shared = chain_of(tokens, 2, [a, b])
    index.insert(1, None, a, shared.key(0), token_bytes(tokens[:2]))
    index.insert(2, 1, b, shared.key(1), token_bytes(tokens[2:]))
    index.insert(3, 1, c, shared.key(1), token_bytes(tokens[2:]))
    index.insert(4, None, b, shared.key(0), token_bytes(tokens[:2]))
    index.insert(5, 4, b, shared.key(1), token_bytes(tokens[2:]))
    for spaces, expected in (
        ((a, b), [1, 2]), ((a, c), [1, 3]), ((a, a), [1]), ((b, b), [4, 5]), ((b, c), [4]),
        ((c, c), []),
    ):  # fmt: skip
        found = list(index.match(chain_of(tokens, 2, spaces), 0, None))
        assert found == expected, f"{found} in place of {expected}: spaces are not kept apart"
    joined = Chain(shared.keys, shared.tokens, ((1, a), (2, b), (9, c)))
    assert list(index.match(joined, 0, None)) == [1, 2], "a space begins where another one ends"


def check_gap(make: MakeIndex) -> None:
    """What follows a block that is not known is not found, and no block is left behind."""
    index, tokens = make(1), [5, 6, 7]
    chain = chain_of(tokens, 1, SPACES[:1] * 3)
    add_chain(index, chain, 1, 10)
    index.remove(12)
    assert list(index.match(chain, 0, None)) == [10, 11], "a block was removed and is found"
    index.remove(11)
    index.insert(20, 10, SPACES[0], chain.key(1), token_bytes([6]))
    assert list(index.match(chain, 0, None)) == [10, 20], "a child of a removed block is found"
    other = chain_of([4, 6, 7], 1, SPACES[:1] * 3)
    assert not index.match(other, 0, None), "a chain is found whose first block is not known"
    assert not index.match(chain_of([], 1, ()), 0, None), "something is found for nothing"


def add_chain(index: BlockIndex, chain: Chain, block_size: int, first: int) -> None:
    """Insert all blocks of a chain under the ids `first`, `first + 1` and so on."""
    parent = None
    for number, place in enumerate(places(chain, block_size)):
        block = first + number
        index.insert(block, parent, place.space, chain.key(number), place.tokens)
        parent = block


def check_depth(make: MakeIndex, depth: int) -> None:
    """A sequence of so many blocks, with a branch behind each, is inserted, found and removed."""
    index = make(1)
    chain = chain_of([1] * depth, 1, SPACES[:1] * depth)
    add_chain(index, chain, 1, 0)
    branch = token_bytes([2])
    for block in range(depth):
        key = block_keys([2], 1, parent=chain.key(block))
        index.insert(depth + block, block, SPACES[0], key, branch)
    assert list(index.match(chain, 0, None)) == list(range(depth)), "a long chain is not found"
    for block in reversed(range(depth)):
        index.remove(depth + block)
        index.remove(block)
    assert len(index) == 0, "blocks of a long chain are left"


def check_churn(make: MakeIndex, rounds: int = 5, chains: int = 200) -> None:
    """An index that is filled and emptied again and again keeps nothing."""
    index = make(4)
    sizes = []
    tracemalloc.start()
    try:
        for number in range(rounds):
            _fill_and_empty(index, Random(number), chains)
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(index) == 0, "an index that was emptied has a length"
    grown = sizes[-1] - sizes[0]
    assert grown < LEAK, f"{grown} bytes are kept of blocks that were removed"


def _fill_and_empty(index: BlockIndex, random: Random, chains: int) -> None:
    first, blocks = 0, 4
    for _ in range(chains):
        tokens = [random.randrange(10**6), *random.choices(range(10**6), k=blocks * 4 - 1)]
        add_chain(index, chain_of(tokens, 4, SPACES[:1] * blocks), 4, first)
        first += blocks
    for block in reversed(range(first)):
        index.remove(block)
