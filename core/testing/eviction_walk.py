"""A random life of a tier: sequences that share beginnings come, are held, go, and come back."""

from collections.abc import Sequence
from hashlib import blake2b
from random import Random

from jackfield.core.api import BlockMeta, Evictor
from jackfield.core.testing.eviction_tier import LeafTier, Path

TOKENS = 3
LONGEST = 6
OPEN = 4
"""Requests that hold blocks at the same time, at most."""
KEY_BYTES = 16


def keys_of(tokens: Sequence[int]) -> list[bytes]:
    """One key per block of a sequence; each stands for all tokens up to there."""
    found = [b""]
    for token in tokens:
        found.append(blake2b(found[-1] + bytes([token]), digest_size=KEY_BYTES).digest())
    return found[1:]


class Walk:
    """Random calls, the same ones for the same seed and the same answers.

    neutral: whether no block has a pin, a priority or an expiry.
    """

    def __init__(self, evictor: Evictor, capacity: int, seed: int, *, neutral: bool) -> None:
        self.tier = LeafTier(evictor, capacity)
        self._random = Random(seed)
        self._neutral = neutral
        self._held: list[Path] = []
        self._known: dict[bytes, int] = {}

    def run(self, events: int) -> None:
        """Go on until the evictor has been told of so many more blocks."""
        end = self.tier.events + events
        while self.tier.events < end:
            self.step()

    def step(self) -> None:
        """One random thing happens."""
        self.tier.now += self._random.choice((0.0, 0.0, 1.0, 5.0))
        actions = (self._open, self._close, self._touch, self._update, self._evict, self._drop)
        self._random.choices(actions, (40, 40, 5, 10, 10, 2))[0]()

    def drain(self) -> None:
        """Everybody lets go, and everything is given up, a few at a time."""
        while self._held:
            self.tier.close(self._held.pop())
        while self.tier.blocks:
            assert self.tier.evict(self._random.randint(1, 5)), "E1: nobody goes"

    def meta(self, key: bytes, depth: int) -> BlockMeta:
        """Half of the blocks ask to be kept for longer, or less long, in one way or several."""
        random = self._random
        if self._neutral or random.random() < 0.5:
            return BlockMeta(key, depth)
        expires = self.tier.now + random.randint(-5, 40)
        return BlockMeta(
            key, depth, random.choice((-1, 0, 0, 1, 2)), random.random() < 0.3,
            random.choice((None, expires)),
        )  # fmt: skip

    def _open(self) -> None:
        if len(self._held) == OPEN:
            self._close()
        tokens = [self._random.randrange(TOKENS) for _ in range(self._random.randint(1, LONGEST))]
        keys, path = keys_of(tokens), list[int]()
        for key in keys:
            block = self._known.get(key)
            if block not in self.tier.blocks:
                break
            path.append(block)
        start = len(path)
        metas = [self.meta(key, start + index) for index, key in enumerate(keys[start:])]
        held = self.tier.open(tuple(path), metas)
        self._known.update(zip(keys, held, strict=False))
        self._held.append(held)

    def _close(self) -> None:
        if self._held:
            self.tier.close(self._held.pop(self._random.randrange(len(self._held))))

    def _some(self) -> list[int]:
        blocks = sorted(self.tier.blocks)
        return self._random.sample(blocks, self._random.randint(0, min(3, len(blocks))))

    def _touch(self) -> None:
        self.tier.touch(self._some())

    def _update(self) -> None:
        some = self._some()
        self.tier.update(some, [self.meta(bytes(KEY_BYTES), 0) for _ in some])

    def _evict(self) -> None:
        rejected = self._some() if self._random.random() < 0.5 else []
        self.tier.evict(self._random.randint(0, 4), rejected)
        self.tier.ask(self._random.choice((0, 1, 1000)))

    def _drop(self) -> None:
        """Somebody leaves out of turn."""
        if self.tier.evictable:
            self.tier.drop([self._random.choice(sorted(self.tier.evictable))])
