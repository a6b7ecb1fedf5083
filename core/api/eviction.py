"""Eviction: in which order cached blocks of a tier are given up."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jackfield.core.api.cache import CacheAxis, CachePlugin

DEVICE = "device"
"""The name of the first tier: the KV pool itself."""


class BlockMeta(NamedTuple):
    """What is known of a cached block when it enters a tier.

    key: the content, 16 bytes; the same content that comes back later has it again, under another
    block id. depth: blocks before it in its sequence. priority: larger is kept longer. pinned:
    kept while anything else can go. expires: engine clock, seconds; None = never.
    """

    key: bytes
    depth: int
    priority: int = 0
    pinned: bool = False
    expires: float | None = None


class EvictionSpace(NamedTuple):
    """Whom an evictor works for: the tier's name, and how many blocks the tier holds at most."""

    tier: str
    capacity: int


class Evictor:
    """The order of one tier. A base policy overrides all methods, a wrapper some of them.

    All calls come from the engine's thread. An id stands for one block for the life of an engine.
    It is inserted, then any of the other calls may follow in any order, until it is removed; a
    block that has left a tier may come back into it later, as a new one. A call may name no block,
    or one that is already as the call says. Only leaves become evictable: blocks on which no other
    block of the tier builds. When a leaf is removed its parent may become one; that is no use of
    the parent, so an order comes from `insert` and `touch`. Budget: 0.2 us per block.

    inner: the evictor that this one wraps; a base policy has none.
    """

    def __init__(self, inner: "Evictor | None" = None) -> None:
        self._inner = inner

    @property
    def inner(self) -> "Evictor":
        """The wrapped evictor. Raises `AssertionError` if there is none."""
        assert self._inner is not None, f"{type(self).__name__} wraps nothing"
        return self._inner

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        """These blocks are cached in the tier from now on; they are busy at first."""
        self.inner.insert(blocks, metas, now)

    def touch(self, blocks: Sequence[int], now: float) -> None:
        """Somebody uses these blocks, or has just let them go; the end of a sequence comes first,
        so that of one sequence the start counts as used last.

        A request that finds a block touches it twice. On the device the first touch comes when the
        request that filled the block lets it go; in another tier nobody lets go, so it is a use.
        """
        self.inner.touch(blocks, now)

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        """What is kept of these blocks has changed: priority, pin or expiry."""
        self.inner.update(blocks, metas, now)

    def evictable(self, blocks: Sequence[int]) -> None:
        """These blocks may be given up: nobody holds them, and nothing builds on them."""
        self.inner.evictable(blocks)

    def busy(self, blocks: Sequence[int]) -> None:
        """These blocks may not be given up any more."""
        self.inner.busy(blocks)

    def remove(self, blocks: Sequence[int]) -> None:
        """These blocks have left the tier."""
        self.inner.remove(blocks)

    def victims(self, count: int, now: float) -> Iterable[int]:
        """The next `count` evictable blocks to give up, the first one first; all if there are
        fewer.

        Distinct ids. Nothing changes by being asked: the core may take some of them, or none, and
        calls `remove` for those that it takes. Often few are asked for while the tier holds many:
        find them without a look at all.
        """
        return self.inner.victims(count, now)


class EvictorPlugin(CachePlugin):
    """Base of a plugin of the axis `eviction`. wraps: whether it needs an inner evictor."""

    axis = CacheAxis.EVICTION
    wraps: bool = False

    def evictor(self, space: EvictionSpace, inner: Evictor | None) -> Evictor:
        """A new evictor for one tier. Called once per tier that names the plugin, at start.

        inner: what stands behind the plugin's name in `cache.eviction`; None for the last one.
        """
        raise NotImplementedError
