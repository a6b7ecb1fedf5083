"""What requests have left behind that is not in order yet."""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.kv.pool import Left
from jackfield.core.kv.request_chain import RequestChain


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


class Departures:
    """In the order in which they left. Each has a prompt of one full block at least."""

    def __init__(self) -> None:
        self._departures: list[Departure] = []
        self._heads: set[bytes] = set()

    def add(self, departure: Departure) -> None:
        """One more."""
        self._departures.append(departure)
        self._heads.add(departure.chain.head)

    def take(self) -> Sequence[Departure]:
        """All of them, which are none any more then."""
        departures = self._departures
        if departures:
            self._departures = []
            self._heads.clear()
        return departures

    def may_concern(self, chain: RequestChain) -> bool:
        """Whether it begins like one of them, so that it could share blocks. One that had no full
        block at first may begin like any."""
        return bool(self._heads) and (not chain.head or chain.head in self._heads)
