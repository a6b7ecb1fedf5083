"""What the cache has been told, and has not put in order yet."""

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jackfield.core.kv.pool import Left
from jackfield.core.kv.request_chain import RequestChain

TIDIED_AT_ONCE = 64
"""Blocks of departures, about: some 0.3 ms, which the shortest steps of a GPU hide."""


class Publication(NamedTuple):
    """The first `num_tokens` positions of a running request are written by that step.

    blocks: the request's own list, which only grows while it runs.
    """

    chain: RequestChain
    blocks: Sequence[int]
    num_tokens: int
    step: int


class Departure(NamedTuple):
    """A request has let go of its blocks, of which `num_tokens` positions are written.

    answer: known tokens that its chain does not know yet. left: blocks that nobody holds now.
    """

    chain: RequestChain
    blocks: Sequence[int]
    num_tokens: int
    last_step: int
    answer: Sequence[int]
    left: Left

    @property
    def num_left(self) -> int:
        """Blocks that nobody holds."""
        return len(self.left.entries) + len(self.left.blocks)


class Clerk(Protocol):
    """Who puts things in order."""

    def enter(self, publication: Publication) -> None:
        """It is known from now on."""

    def file(self, departure: Departure) -> None:
        """What it leaves is cached or free from now on."""


class Backlog:
    """All chains in it begin with a full block. Publications are of running requests; they come
    before whatever concerns the same request later."""

    def __init__(self, clerk: Clerk) -> None:
        self._clerk = clerk
        self._publications: list[Publication] = []
        self._departures: deque[Departure] = deque()
        self._heads: Counter[bytes] = Counter()

    def publish(self, publication: Publication) -> None:
        """One more."""
        self._publications.append(publication)

    def leave(self, departure: Departure) -> None:
        """One more, whose publications have been entered."""
        self._departures.append(departure)
        self._heads[departure.chain.head] += 1

    def may_concern(self, chain: RequestChain) -> bool:
        """Whether it could share blocks with one that is in it: those that begin alike do. One that
        had no full block at first may begin like any."""
        if self._publications:
            return True
        return bool(self._heads) and (not chain.head or chain.head in self._heads)

    def clear(self) -> None:
        """Put all in order."""
        self.enter()
        while self._departures:
            self._file_first()

    def shorten(self) -> None:
        """All publications, and a few departures: no more than a step hides."""
        self.enter()
        filed = 0
        while self._departures and filed < TIDIED_AT_ONCE:
            filed += self._file_first()

    def enter(self) -> None:
        """All publications."""
        publications, self._publications = self._publications, []
        for publication in publications:
            self._clerk.enter(publication)

    def _file_first(self) -> int:
        """How many blocks it left."""
        departure = self._departures.popleft()
        head = departure.chain.head
        self._heads[head] -= 1
        if not self._heads[head]:
            del self._heads[head]
        self._clerk.file(departure)
        return departure.num_left
