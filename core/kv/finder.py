"""Finds entries by content. A plugin proposes, the core compares."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from jackfield.core.api import BlockIndex
from jackfield.core.kv.contained import Containment
from jackfield.core.kv.entry import Entry
from jackfield.core.kv.plain_index import PlainIndex
from jackfield.core.kv.request_chain import RequestChain


class Finder:
    """All entries by id, and the index over them.

    Every id that the index returns is checked: its tokens, its space and its parent are those of
    the chain; what is not stays unused and counts as a fault. An index that has used up its faults
    is replaced by a plain one. epoch changes whenever something is added or removed.

    make: a new index of the plugin; None = requests share nothing.
    """

    def __init__(
        self, make: Callable[[], Any] | None, guard: Containment | None, block_size: int
    ) -> None:
        self.epoch = 0
        self.collisions = 0
        self.entries: dict[int, Entry] = {}
        self._heads: Counter[bytes] = Counter()
        self._make = make
        self._guard = guard
        self._block_size = block_size
        self._plain: PlainIndex | None = None
        self._index: BlockIndex | None = None
        self._next = 0
        self.reset()

    @property
    def shares(self) -> bool:
        """Whether a request may find what another one has computed."""
        return self._index is not None or self._plain is not None

    def reset(self) -> None:
        """Begin with an empty index; there are no entries."""
        assert not self.entries
        self.epoch += 1
        if self._make is None:
            return
        if self._guard is None or self._guard.off:
            self._plain = PlainIndex(self._block_size)
            return
        self._index = self._guard.ask(None, _index, self._make)
        if self._index is None:
            self._plain = PlainIndex(self._block_size)

    def faults(self) -> dict[str, str]:
        """The plugin, if the plain index has taken over from it, and why."""
        if self._plain is None or self._guard is None:
            return {}
        return {self._guard.plugin: self._guard.last_fault or "it used up its faults"}

    def number(self) -> int:
        """An id that was never used."""
        self._next += 1
        return self._next

    def add(self, entries: Sequence[Entry]) -> None:
        """These entries can be found from now on; parents come before what builds on them."""
        plain = self._use_plain()
        self.entries.update({entry.id: entry for entry in entries})
        self.epoch += 1
        self._heads.update(_heads(entries))
        places = [_place(entry) for entry in entries]
        if plain:
            assert self._plain is not None
            for place in places:
                self._plain.insert(*place)
        elif self._index is not None:
            assert self._guard is not None
            self._guard.each(self._index.insert, places)

    def remove(self, entries: Sequence[Entry]) -> None:
        """These entries are gone, and before each of them all that built on it."""
        plain = self._use_plain()
        if plain:
            assert self._plain is not None
            for entry in entries:
                self._plain.remove(entry.id)
        elif self._index is not None:
            assert self._guard is not None
            self._guard.each(self._index.remove, [(entry.id,) for entry in entries])
        for entry in entries:
            del self.entries[entry.id]
        for head in _heads(entries):
            self._heads[head] -= 1
            if not self._heads[head]:
                del self._heads[head]
        self.epoch += 1

    def _use_plain(self) -> bool:
        """Whether the plain index serves; it takes over with all entries that there are."""
        if self._plain is None and self._guard is not None and self._guard.off:
            self._plain = PlainIndex(self._block_size)
            for entry in sorted(self.entries.values(), key=lambda one: one.depth):
                self._plain.insert(*_place(entry))
        return self._plain is not None

    def match(self, chain: RequestChain, start: int, parent: Entry | None) -> list[Entry]:
        """Entries of the chain's blocks from `start` on, without a gap."""
        if start >= chain.num_blocks:
            return []
        if parent is None and chain.head and chain.head not in self._heads:
            return []  # nobody has begun like it
        number = None if parent is None else parent.id
        if self._use_plain():
            assert self._plain is not None
            return self._verified(
                self._plain.match(chain.view, start, number), chain, start, parent
            )
        if self._index is None or self._guard is None:
            return []

        def check(answer: Any) -> list[Entry]:
            return self._verified(answer, chain, start, parent)

        return self._guard.ask([], check, self._index.match, chain.view, start, number)

    def _verified(
        self, answer: Sequence[int], chain: RequestChain, start: int, parent: Entry | None
    ) -> list[Entry]:
        found: list[Entry] = []
        entries, index = self.entries, start
        for number in answer[: chain.num_blocks - start]:
            entry = entries.get(number)
            if entry is None:
                raise ValueError(f"it names block {number!r}, which is not cached")
            if entry.parent is not parent or entry.space != chain.space(index):
                raise ValueError(f"it names block {number}, which is not of this sequence")
            if entry.tokens != chain.tokens(index):
                self.collisions += 1
                break
            found.append(entry)
            parent = entry
            index += 1
        return found


def _heads(entries: Sequence[Entry]) -> list[bytes]:
    """Like `RequestChain.head`, of those with which a sequence begins."""
    return [entry.space + entry.key for entry in entries if entry.parent is None]


def _place(entry: Entry) -> tuple[int, int | None, bytes, bytes, bytes]:
    """What an index is told of it."""
    parent = None if entry.parent is None else entry.parent.id
    return (entry.id, parent, entry.space, entry.key, entry.tokens)


def _index(answer: Any) -> BlockIndex:
    for method in ("match", "insert", "remove"):
        if not callable(getattr(answer, method, None)):
            raise ValueError(f"it returned {answer!r}, which has no method {method}")
    index: BlockIndex = answer
    return index
