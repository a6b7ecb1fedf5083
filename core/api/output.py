"""What comes back for a request."""

from enum import StrEnum
from typing import NamedTuple


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class Logprob(NamedTuple):
    """A token's log-probability (finite, at least `LOGPROB_FLOOR`) and rank; 1 = most likely."""

    logprob: float
    rank: int
    decoded_token: str | None = None


LOGPROB_FLOOR = -9999.0
"""What minus infinity is reported as, since JSON has no infinities."""
