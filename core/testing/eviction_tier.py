"""A tier as the core keeps it, without a cache behind it: who holds which block, who is a leaf.

It tells an evictor what the core tells, and checks every answer.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

from jackfield.core.api import BlockMeta, Evictor

Path = tuple[int, ...]
"""Blocks of a sequence, from its start on."""


@dataclass(slots=True)
class Cached:
    """A block of the tier. holders: requests that use it. children: blocks that build on it."""

    parent: int | None
    holders: int = 0
    children: set[int] = field(default_factory=set)


class LeafTier:
    """Blocks, each cached behind its parent; only leaves that nobody holds can be given up.

    answers: all that the evictor has said so far. events: how often a block was named to it.
    """

    def __init__(self, evictor: Evictor, capacity: int) -> None:
        self.evictor = evictor
        self.capacity = capacity
        self.blocks: dict[int, Cached] = {}
        self.evictable: set[int] = set()
        self.answers: list[Path] = []
        self.events = 0
        self.now = 0.0
        self._ids: dict[bytes, int] = {}
        self._numbers = count()

    def open(self, path: Path, metas: Sequence[BlockMeta]) -> Path:
        """A request holds what is cached of its sequence, and caches a block per meta behind it.

        Room is made first. What does not fit is not cached. Returns all that the request holds.
        """
        self._hold(path)
        self._tell("touch", path[::-1], self.now)
        self.evict(len(self.blocks) + len(metas) - self.capacity)
        return path + self._cache(path, metas[: self.capacity - len(self.blocks)])

    def close(self, path: Path) -> None:
        """A request lets all its blocks go."""
        for block in path:
            self.blocks[block].holders -= 1
        self._settle(path[::-1])
        self._tell("touch", path[::-1], self.now)

    def touch(self, blocks: Sequence[int]) -> None:
        """Blocks are used without being held."""
        self._tell("touch", blocks, self.now)

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta]) -> None:
        """What is kept of these blocks changes."""
        self._tell("update", blocks, metas, self.now)

    def ask(self, number: int) -> Path:
        """The next victims. Laws E1 and E3, and that asking changes nothing."""
        first = victims_of(self.evictor, number, self.now)
        check_answer(first, number, self.evictable, self.blocks)
        again = victims_of(self.evictor, number, self.now)
        assert again == first, f"E1: asked for {number} twice, it said {first} and then {again}"
        self.answers.append(first)
        return first

    def evict(self, number: int, rejected: Sequence[int] = ()) -> Path:
        """Give up so many blocks, as far as possible, but not those that are rejected.

        As in the core, one that goes may make its parent a leaf, which can go next.
        """
        gone: list[int] = []
        while len(gone) < number:
            taken = [one for one in self.ask(number - len(gone)) if one not in rejected]
            if not taken:
                break
            self.drop(taken)
            gone += taken
        return tuple(gone)

    def drop(self, leaves: Sequence[int]) -> None:
        """These leaves leave the tier."""
        self._tell("remove", leaves)
        self.evictable.difference_update(leaves)
        parents = [self.blocks.pop(block).parent for block in leaves]
        for block, parent in zip(leaves, parents, strict=True):
            if parent is not None:
                self.blocks[parent].children.remove(block)
        self._settle([parent for parent in parents if parent is not None])

    def path(self, block: int) -> Path:
        """The sequence that ends with this block."""
        found = [block]
        while (parent := self.blocks[found[-1]].parent) is not None:
            found.append(parent)
        return tuple(reversed(found))

    def _hold(self, path: Path) -> None:
        for block in path:
            self.blocks[block].holders += 1
        busy = [block for block in path if block in self.evictable]
        self.evictable.difference_update(busy)
        self._tell("busy", busy)

    def _cache(self, path: Path, metas: Sequence[BlockMeta]) -> Path:
        added = tuple(self._id_of(meta.key) for meta in metas)
        parent = path[-1] if path else None
        for block in added:
            self.blocks[block] = Cached(parent, holders=1)
            if parent is not None:
                self.blocks[parent].children.add(block)
            parent = block
        self._tell("insert", added, metas, self.now)
        return added

    def _id_of(self, key: bytes) -> int:
        """Half of all contents live on in another tier, and come back under their old id."""
        if key[0] % 2 or key not in self._ids:
            self._ids[key] = next(self._numbers)
        return self._ids[key]

    def _settle(self, blocks: Sequence[int]) -> None:
        idle = [one for one in dict.fromkeys(blocks) if self._is_idle(self.blocks[one])]
        self.evictable.update(idle)
        self._tell("evictable", idle)

    def _is_idle(self, block: Cached) -> bool:
        return not block.holders and not block.children

    def _tell(self, event: str, blocks: Sequence[int], *more: object) -> None:
        self.events += len(blocks)
        try:
            getattr(self.evictor, event)(blocks, *more)
        except Exception as error:
            raise AssertionError(f"E4: {event} of {list(blocks)} raised {error!r}") from error


def victims_of(evictor: Evictor, number: int, now: float) -> Path:
    """What the evictor answers, of which one more than was asked for is looked at. Law E4."""
    try:
        return tuple(islice(evictor.victims(number, now), number + 1))
    except Exception as error:
        raise AssertionError(f"E4: victims of {number} raised {error!r}") from error


def check_answer(
    answer: Sequence[int], count: int, evictable: set[int], blocks: Container[int]
) -> None:
    """Laws E1 and E3 on one answer of `victims`."""
    odd = [block for block in answer if type(block) is not int]
    assert not odd, f"E1: {odd} are no block ids"
    gone = [block for block in answer if block not in blocks]
    assert not gone, f"E3: {gone} are not in the tier any more, or never were"
    assert len(set(answer)) == len(answer), f"E1: {list(answer)} names a block twice"
    wrong = [block for block in answer if block not in evictable]
    assert not wrong, f"E1: {wrong} may not be given up"
    right = min(count, len(evictable))
    assert len(answer) == right, f"E1: {len(answer)} victims of {count}, {right} would be right"
