"""Where the engine takes its time from."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since some fixed moment; never goes back. A simulator brings its own."""

    def now(self) -> float: ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()
