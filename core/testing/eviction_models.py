"""Evictors that are slow and evidently right, and policies as their papers write them.

An evictor is asked for room before it is known who comes; in the paper of ARC it is the other way
round. `PaperArc` therefore makes room first, and says where that differs.
"""

from collections.abc import Sequence

from jackfield.core.api import BlockMeta, Evictor


class ListLru(Evictor):
    """All blocks in a list, the one that was used last at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []
        self.free: set[int] = set()

    def insert(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        self.order.extend(blocks)

    def touch(self, blocks: Sequence[int], now: float) -> None:
        for block in blocks:
            self.order.remove(block)
            self.order.append(block)

    def update(self, blocks: Sequence[int], metas: Sequence[BlockMeta], now: float) -> None:
        pass

    def evictable(self, blocks: Sequence[int]) -> None:
        self.free.update(blocks)

    def busy(self, blocks: Sequence[int]) -> None:
        self.free.difference_update(blocks)

    def remove(self, blocks: Sequence[int]) -> None:
        self.free.difference_update(blocks)
        for block in blocks:
            self.order.remove(block)

    def victims(self, count: int, now: float) -> Sequence[int]:
        return [block for block in self.order if block in self.free][:count]


class ListFifo(ListLru):
    """The same, but uses count for nothing: who came first goes first."""

    def touch(self, blocks: Sequence[int], now: float) -> None:
        pass


class Policy:
    """A cache of `capacity` contents that can all be given up at any time."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def request(self, content: bytes) -> bytes | None:
        """Somebody wants this content, which is cached afterwards. Returns what went for it."""
        raise NotImplementedError


class ModelLfu(Policy):
    """LFU-DA: a content has its number of uses, plus the age of the cache at its last one.

    A request is two uses: it takes the content and lets it go.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.age = 0
        self.clock = 0
        self.uses: dict[bytes, int] = {}
        self.value: dict[bytes, tuple[int, int]] = {}

    def request(self, content: bytes) -> bytes | None:
        gone = None
        if content not in self.value and len(self.value) == self.capacity:
            gone = min(self.value, key=lambda one: self.value[one])
            self.age = self.value.pop(gone)[0]
            del self.uses[gone]
        self.clock += 1
        self.uses[content] = self.uses.get(content, 0) + 2
        self.value[content] = (self.uses[content] + self.age, self.clock)
        return gone


class ModelSlru(Policy):
    """Two lists, the least recently used content first. protected: how many the second holds."""

    def __init__(self, capacity: int, protected: int) -> None:
        super().__init__(capacity)
        self.limit = protected
        self.probation: list[bytes] = []
        self.protected: list[bytes] = []

    def request(self, content: bytes) -> bytes | None:
        if content in self.protected or content in self.probation:
            self._hit(content)
            return None
        gone = None
        if len(self.probation) + len(self.protected) == self.capacity:
            gone = (self.probation or self.protected).pop(0)
        self.probation.append(content)
        return gone

    def _hit(self, content: bytes) -> None:
        (self.protected if content in self.protected else self.probation).remove(content)
        self.protected.append(content)
        if len(self.protected) > self.limit:
            self.probation.append(self.protected.pop(0))


class PaperArc(Policy):
    """Figure 4 of Megiddo and Modha (2003), case by case; the least recently used comes first.

    Two differences. REPLACE comes before ADAPTATION, and so sees the target that the request has
    not moved yet; and it does not know whether the request is in B2, so |T1| = p never counts as
    too long. In case IV a list that is full loses its first entry after REPLACE, not before, which
    comes to the same.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.p = 0.0
        self.t1: list[bytes] = []
        self.t2: list[bytes] = []
        self.b1: list[bytes] = []
        self.b2: list[bytes] = []

    def request(self, content: bytes) -> bytes | None:
        if content in self.t1 or content in self.t2:  # case I
            (self.t1 if content in self.t1 else self.t2).remove(content)
            self.t2.append(content)
            return None
        full = len(self.t1) + len(self.t2) == self.capacity
        gone = self._replace() if full else None
        if content in self.b1:  # case II
            self.p = min(self.capacity, self.p + max(1.0, len(self.b2) / len(self.b1)))
            self.b1.remove(content)
            self.t2.append(content)
        elif content in self.b2:  # case III
            self.p = max(0.0, self.p - max(1.0, len(self.b1) / len(self.b2)))
            self.b2.remove(content)
            self.t2.append(content)
        else:  # case IV
            self._make_room()
            self.t1.append(content)
        return gone

    def _make_room(self) -> None:
        recent = len(self.t1) + len(self.b1)
        total = recent + len(self.t2) + len(self.b2)
        if recent == self.capacity:
            self.b1.pop(0)
        elif total == 2 * self.capacity:
            self.b2.pop(0)

    def _replace(self) -> bytes:
        if self.t1 and (len(self.t1) > self.p or not self.t2):
            gone = self.t1.pop(0)
            self.b1.append(gone)
        else:
            gone = self.t2.pop(0)
            self.b2.append(gone)
        return gone
