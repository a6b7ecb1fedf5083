"""From what a caller asks for to the engine's records."""

import random

from jackfield.core.engine.clock import Clock
from jackfield.core.engine.door import Admissible
from jackfield.core.engine.group import Group
from jackfield.core.engine.late import BannedSequences
from jackfield.core.engine.messages import NewRequest
from jackfield.core.engine.request import Request
from jackfield.core.kv.block_cache import BlockCache

SEED_BITS = 63
MAX_SEED = 1 << SEED_BITS
GOLDEN = 0x9E3779B97F4A7C15
"""Spreads the seeds of several answers to one prompt."""


class RequestMaker:
    """Numbers requests by arrival, and gives each its seed and its chain of blocks."""

    def __init__(self, cache: BlockCache, clock: Clock, seed: int, eos_ids: frozenset[int]) -> None:
        self._cache = cache
        self._clock = clock
        self._random = random.Random(seed)
        self._eos_ids = eos_ids
        self._next_handle = 0

    def make(self, new: NewRequest, checked: Admissible) -> list[Request]:
        """One for each answer that is asked for; several are a group."""
        members = [self._make(new, checked, index) for index in range(new.params.n)]
        if len(members) > 1:
            Group(members)
        return members

    def _make(self, new: NewRequest, checked: Admissible, index: int) -> Request:
        request = Request(
            self._next_handle,
            new.id,
            index,
            checked.prompt,
            new.params,
            new.context,
            arrival=self._clock.now(),
            seed=self._seed(new.params.seed, index),
            max_tokens=checked.max_tokens,
            eos_ids=self._eos_ids,
        )
        if new.banned_sequences:
            self._ban(request, new)
        request.chain = self._cache.open(request.view, checked.tokens, new.keys)
        self._next_handle += 1
        return request

    @staticmethod
    def _ban(request: Request, new: NewRequest) -> None:
        longer = [ids for ids in new.banned_sequences if len(ids) > 1]
        request.banned = tuple(ids[0] for ids in new.banned_sequences if len(ids) == 1)
        request.binder = BannedSequences(longer) if longer else None

    def _seed(self, seed: int | None, index: int) -> int:
        if seed is None:
            return self._random.getrandbits(SEED_BITS)
        return (seed + index * GOLDEN) % MAX_SEED
