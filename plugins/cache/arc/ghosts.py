"""What a cache remembers of contents that it gave up, and what it learns when they come back."""

from collections import OrderedDict


class Ghosts:
    """The lists B1 and B2: keys of contents that left T1 and T2, the earliest first.

    target: how many blocks T1 should have; p in the paper. capacity: blocks of the tier.
    """

    def __init__(self, capacity: int) -> None:
        self.target = 0.0
        self._capacity = capacity
        self._b1: OrderedDict[bytes, None] = OrderedDict()
        self._b2: OrderedDict[bytes, None] = OrderedDict()

    def returns(self, key: bytes) -> bool:
        """Whether the content was given up not long ago. If so, it is one no more."""
        recent, frequent = len(self._b1), len(self._b2)
        if key in self._b1:
            self.target = min(self.target + max(1.0, frequent / recent), self._capacity)
            del self._b1[key]
            return True
        if key in self._b2:
            self.target = max(self.target - max(1.0, recent / frequent), 0.0)
            del self._b2[key]
            return True
        return False

    def add(self, key: bytes, was_used_once: bool) -> None:
        """The content was given up. A key is in one list at most, where it went last."""
        here, there = (self._b1, self._b2) if was_used_once else (self._b2, self._b1)
        there.pop(key, None)
        here[key] = None
        here.move_to_end(key)

    def trim(self, num_once: int, num_blocks: int) -> None:
        """Forget the earliest: T1 and B1 are one tier long at most, and all four lists two.

        num_once: blocks in T1. num_blocks: in T1 and T2.
        """
        while self._b1 and num_once + len(self._b1) > self._capacity:
            self._b1.popitem(last=False)
        while self._b2 and num_blocks + len(self._b1) + len(self._b2) > 2 * self._capacity:
            self._b2.popitem(last=False)
