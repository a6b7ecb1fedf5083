"""How long clients wait for the tokens of their answers."""

from time import perf_counter
from typing import TYPE_CHECKING

from jackfield.core.bounds import FIRST_TOKEN_SECONDS, TOKEN_SECONDS
from jackfield.core.histogram import Histogram

if TYPE_CHECKING:
    from jackfield.core.front.outputs import RequestOutput


class Waits:
    """Of all requests, in seconds, as this process sees them."""

    def __init__(self) -> None:
        self.first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.between = Histogram(TOKEN_SECONDS)


class Stopwatch:
    """For one request of a client, with so many prompts. Starts at once."""

    __slots__ = ("_last", "_start", "_waits")

    def __init__(self, waits: Waits, prompts: int) -> None:
        self._waits = waits
        self._last: list[float | None] = [None] * prompts
        self._start = perf_counter()

    def news(self, place: int, output: "RequestOutput") -> None:
        """Something of the answers to that prompt has come. Called for every token, so cheap."""
        now = perf_counter()
        last = self._last[place]
        if last is not None:
            self._waits.between.add(now - last)
        elif any(answer.token_ids for answer in output.outputs):
            self._waits.first_token.add(now - self._start)
        else:
            return
        self._last[place] = now
