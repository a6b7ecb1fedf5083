"""A small cache of contents without chains, and traces of what is asked of it."""

from collections.abc import Callable, Iterator, Sequence
from random import Random

from jackfield.core.api import DEVICE, BlockMeta, EvictionSpace, Evictor

KEY_BYTES = 16
MakeEvictor = Callable[[EvictionSpace], Evictor]


def content(number: int) -> bytes:
    """The key of the so-manieth content."""
    return number.to_bytes(KEY_BYTES, "big")


class FlatCache:
    """Contents in a tier of which every block is a leaf, and is held only while it is asked for."""

    def __init__(self, make: MakeEvictor, capacity: int) -> None:
        self.evictor = make(EvictionSpace(DEVICE, capacity))
        self._capacity = capacity
        self._blocks: dict[bytes, int] = {}
        self._contents: dict[int, bytes] = {}
        self._asked = 0
        self.hits = 0

    def request(self, key: bytes) -> bytes | None:
        """Somebody wants this content, which is cached afterwards. Returns what went for it."""
        self._asked += 1
        now = float(self._asked)
        known = self._blocks.get(key)
        if known is not None:
            self.hits += 1
            self.evictor.busy([known])
            self.evictor.touch([known], now)
            self._let_go(known, now)
            return None
        gone = self._evict(now) if len(self._blocks) == self._capacity else None
        self._blocks[key], self._contents[self._asked] = self._asked, key
        self.evictor.insert([self._asked], [BlockMeta(key, 0)], now)
        self._let_go(self._asked, now)
        return gone

    def _let_go(self, block: int, now: float) -> None:
        self.evictor.evictable([block])
        self.evictor.touch([block], now)

    def _evict(self, now: float) -> bytes:
        (block,) = self.evictor.victims(1, now)
        self.evictor.remove([block])
        key = self._contents.pop(block)
        del self._blocks[key]
        return key


def hits(make: MakeEvictor, trace: Sequence[int], capacity: int) -> int:
    """How many requests of the trace find their content."""
    cache = FlatCache(make, capacity)
    for number in trace:
        cache.request(content(number))
    return cache.hits


def cyclic(length: int, rounds: int) -> list[int]:
    """The same contents over and over, in the same order."""
    return list(range(length)) * rounds


def hot_set(hot: int, share: float, length: int, seed: int = 0) -> list[int]:
    """So many contents that are asked for again and again; all other requests are for new ones."""
    random = Random(seed)
    cold = iter(range(hot, hot + length))
    return [random.randrange(hot) if random.random() < share else next(cold) for _ in range(length)]


def mixed(seed: int, contents: int, length: int) -> Iterator[int]:
    """Phases of few contents, of all of them, and of sweeps, so that old ones come back."""
    random = Random(seed)
    while length > 0:
        first, width = random.randrange(contents), random.choice((2, 4, contents))
        for step in range(min(random.randint(1, 30), length)):
            offset = step if random.random() < 0.3 else random.randrange(width)
            yield (first + offset) % contents
            length -= 1
