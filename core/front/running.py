"""What a front needs of an engine, wherever it runs."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from jackfield.core.api import FinishReason
from jackfield.core.engine.decisions import Decision
from jackfield.core.engine.door import DoorLimits
from jackfield.core.engine.listing import Query, RequestPage
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.engine.snapshot import Snapshot


class Health(NamedTuple):
    """reason: why no request can be served any more; None while the engine lives.

    heartbeat_age: seconds since the engine last said that it lives; it grows while its process is
    frozen. busy: seconds since the step under way began, 0 between steps.
    """

    reason: str | None
    heartbeat_age: float
    busy: float

    @property
    def alive(self) -> bool:
        """Whether the engine has not ended. A frozen one is alive."""
        return self.reason is None


class Listener(Protocol):
    """Told what happens in an engine, in a thread of its choice."""

    def on_deltas(self, deltas: Sequence[Delta]) -> None:
        """News, once per step that has any."""

    def on_refused(self, request_id: str, error: Exception) -> None:
        """A request was not accepted."""

    def on_end(self, death: str | None) -> None:
        """Nothing else comes. None: it was closed; otherwise what killed it."""


class RunningEngine(Protocol):
    """Methods may be called from any thread.

    Those that ask for work raise `EngineStoppedError` when the engine has ended.
    """

    @property
    def limits(self) -> DoorLimits:
        """What a request must keep to, and whether it should bring keys. Never changes."""

    def add(self, new: NewRequest) -> None:
        """Hand a request over."""

    def abort(
        self,
        request_id: str,
        index: int | None = None,
        finish: FinishReason = FinishReason.ABORT,
    ) -> None:
        """End a request, or one of its answers. finish: STOP if its text has ended it."""

    def explain(self, request_id: str) -> "Future[list[Decision]]":
        """Why the request waited, ran, lost its seat or ended; oldest first."""

    def requests(self, query: Query) -> "Future[RequestPage]":
        """Who is in the engine, and why each is where it is."""

    def reset_prefix_cache(self) -> "Future[bool]":
        """Forget all cached blocks. False, and nothing is forgotten, while any is in use."""

    def snapshot(self) -> Snapshot:
        """The latest counters and gauges."""

    def health(self) -> Health:
        """Whether it lives. Never raises, never waits."""

    def close(self) -> None:
        """Stop and wait for the end. Requests that are not done are aborted."""
