"""The starvation valve: a small share of admissions goes to whoever arrived first."""

from jackfield.core.engine.heap import LazyHeap
from jackfield.core.engine.request import Request
from jackfield.core.engine.tally import Tally

MOST_CREDIT = 2.0
"""So that displacements, which use none, do not save up admissions for later."""


class Valve:
    """Waiting requests by first arrival. It is open for one in every 1/share admissions.

    num_tokens: prompt and known answer tokens of all who wait.
    """

    def __init__(self, share: float, tally: Tally) -> None:
        self._share = share
        self._tally = tally
        self._credit = 0.0
        self._waiting: LazyHeap[Request] = LazyHeap()
        self._by_handle: dict[int, Request] = {}
        self.num_tokens = 0

    def push(self, request: Request) -> None:
        """The request waits; a preempted one counts by its first arrival."""
        self._waiting.push(request, request.handle)
        self._by_handle[request.handle] = request
        self.num_tokens += request.total
        self._tally.add(request.context.tenant)

    def remove(self, request: Request) -> None:
        """The request waits no longer."""
        self._waiting.remove(request)
        self._by_handle.pop(request.handle, None)
        self.num_tokens -= request.total
        self._tally.drop(request.context.tenant)

    def admitted(self, request: Request, *, keeps_credit: bool = False) -> None:
        """The request got a seat; keeps_credit: one that was not the valve's to give."""
        if self.is_open and not keeps_credit:
            self._credit -= 1.0
        self._credit = min(self._credit + self._share, MOST_CREDIT)
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

    def find(self, handle: int) -> Request | None:
        """The waiting request of that handle."""
        return self._by_handle.get(handle)

    def requests(self) -> list[Request]:
        """All who wait, by arrival."""
        return sorted(self._waiting.items(), key=lambda request: request.handle)
