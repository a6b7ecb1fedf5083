"""One request's blocks on their way up from a tier."""

from enum import Enum

from jackfield.core.kv.entry import Entry
from jackfield.core.kv.request_chain import RequestChain


class Later(Enum):
    """Why nothing is loaded now, although it should be.

    FULL: others fill as much of the pool as may be filled. SHARED: others load the same.
    """

    FULL = "others load as much as may be loaded at a time"
    SHARED = "others load the same"


class Load:
    """Holds the blocks that it fills, and all that they build on, until the request gets its seat.

    entries: those that it fills. pending: numbers of transfers that have not ended. deadline: when
    it is given up. seconds: that the longest of its transfers took.
    """

    __slots__ = ("chain", "deadline", "entries", "held", "pending", "seconds")

    def __init__(self, chain: RequestChain, entries: list[Entry], deadline: float) -> None:
        self.chain = chain
        self.entries = entries
        self.held: list[Entry] = []
        self.pending: set[int] = set()
        self.seconds = 0.0
        self.deadline = deadline

    @property
    def is_done(self) -> bool:
        """Whether all transfers have ended."""
        return not self.pending
