"""The starvation valve: a small share of admissions goes to whoever arrived first."""

from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.request import Request


class Valve:
    """Waiting requests by first arrival. It is open for one in every 1/share admissions.

    num_tokens: prompt and known answer tokens of all who wait. num_used: admissions it decided.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0
        self._waiting: LazyHeap[Request] = LazyHeap()
        self.num_used = 0
        self.num_tokens = 0

    def push(self, request: Request) -> None:
        """The request waits; a preempted one counts by its first arrival."""
        self._waiting.push(request, request.handle)
        self.num_tokens += request.total

    def remove(self, request: Request) -> None:
        """The request waits no longer."""
        self._waiting.remove(request)
        self.num_tokens -= request.total

    def admitted(self, request: Request) -> None:
        """The request got a seat."""
        first = self._waiting.peek() is request
        if self.is_open:
            self._credit -= 1.0
            self.num_used += int(first)
        self._credit += self._share
        self.remove(request)

    @property
    def is_open(self) -> bool:
        """Whether the next admission is the oldest's."""
        return self._credit >= 1.0

    @property
    def oldest(self) -> Request:
        """Who waits longest. Only when somebody waits."""
        request = self._waiting.peek()
        assert request is not None, "nobody waits"
        return request

    def requests(self) -> list[Request]:
        """All who wait, by arrival."""
        return sorted(self._waiting.items(), key=lambda request: request.handle)
