"""A clock that only moves when told."""


class ManualClock:
    """Starts at 0; `advance` moves it."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward; never back."""
        assert seconds >= 0
        self._now += seconds
