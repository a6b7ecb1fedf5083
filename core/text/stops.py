"""Stop strings in a text that arrives in pieces."""

from collections.abc import Sequence

from jackfield.core.api.errors import RequestError


class StopStrings:
    """Passes a text on until the first stop string, whatever pieces it comes in.

    The stop string that is complete first wins; of two complete at the same character, the one
    that starts first, so the longer. The text after it is dropped. Costs one search per stop
    string and push, over the new text and what is held back: about 2 microseconds for a few.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """`include` leaves the stop string itself in the text."""
        if "" in stops:
            raise RequestError("A stop string must not be empty.", param="stop")
        self._stops = tuple(dict.fromkeys(stops))
        self._first_characters = frozenset(stop[0] for stop in self._stops)
        self._longest = max(map(len, self._stops), default=0)
        self._include = include
        self._held = ""
        self.hit: str | None = None

    def push(self, text: str) -> str:
        """The text that is safe to show: no later text can make its end part of a stop string."""
        if self.hit is not None:
            return ""
        buffer = self._held + text
        found = self._first_match(buffer)
        if found is None:
            cut = self._start_of_candidate(buffer)
            self._held = buffer[cut:]
            return buffer[:cut]
        end, start = found
        self.hit = buffer[start:end]
        self._held = ""
        return buffer[: end if self._include else start]

    def finish(self) -> str:
        """What was held back, when the text has ended without the rest of a stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, buffer: str) -> tuple[int, int] | None:
        """End and start of the winner."""
        starts = ((buffer.find(stop), len(stop)) for stop in self._stops)
        return min(((start + size, start) for start, size in starts if start >= 0), default=None)

    def _start_of_candidate(self, buffer: str) -> int:
        """Where the longest tail begins that is the beginning of a stop string."""
        for start in range(max(0, len(buffer) - self._longest + 1), len(buffer)):
            if buffer[start] in self._first_characters:
                tail = buffer[start:]
                if any(stop.startswith(tail) for stop in self._stops):
                    return start
        return len(buffer)
