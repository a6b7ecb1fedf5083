"""What advisors see and answer: verdicts, limits of a step, victims, whole plans, events."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from jackfield.core.api.request import RequestView


class VerdictKind(IntEnum):
    """From the mildest to the most restrictive; the most restrictive of all advisors holds."""

    ACCEPT = 0
    DEGRADE = 1
    DEFER = 2
    REJECT = 3


class Verdict(NamedTuple):
    """What an advisor says of an arriving request.

    until: for DEFER, the engine time of the next question. code and retry_after (seconds): for
    REJECT, told to the caller. max_tokens: for DEGRADE, the longest answer.
    """

    kind: VerdictKind
    code: str = ""
    until: float = 0.0
    retry_after: float = 0.0
    max_tokens: int | None = None

    @staticmethod
    def accept() -> "Verdict":
        """Let it wait for a seat."""
        return _ACCEPT

    @staticmethod
    def degrade(max_tokens: int, code: str = "degraded") -> "Verdict":
        """Let it wait for a seat, but for a shorter answer: at most so many tokens, 1 or more.

        The smallest of all advisors holds. It never lengthens an answer, and the caller's
        min_tokens are kept. The answer then ends with the reason "length".
        """
        return Verdict(VerdictKind.DEGRADE, code, max_tokens=max_tokens)

    @staticmethod
    def defer(until: float, code: str = "deferred") -> "Verdict":
        """Park it, without seat or memory, and ask again at `until`."""
        return Verdict(VerdictKind.DEFER, code, until=until)

    @staticmethod
    def reject(code: str, retry_after: float = 0.0) -> "Verdict":
        """Refuse it; `code` is the machine-readable reason."""
        return Verdict(VerdictKind.REJECT, code, retry_after=retry_after)


_ACCEPT = Verdict(VerdictKind.ACCEPT)


class LoadView(NamedTuple):
    """How busy the engine is: counts of requests, tokens and blocks.

    in_flight: steps that were submitted and have not ended. queued: tenant -> requests of it that
    wait or are parked; only those that have some. It follows the engine: copy what should last.
    """

    now: float
    waiting: int
    parked: int
    running: int
    waiting_tokens: int
    free_blocks: int
    total_blocks: int
    in_flight: int
    queued: Mapping[str, int]


class StepView(NamedTuple):
    """What is known before a step is planned.

    decodes: running requests that need one token. context_tokens: positions they attend to.
    prefill_backlog: prompt positions of running requests that are not computed yet.
    """

    load: LoadView
    number: int
    decodes: int
    context_tokens: int
    prefill_backlog: int


class Shape(NamedTuple):
    """Upper limits for one step; None = no opinion. Folded field by field, most restrictive wins.

    tokens, prefill_tokens: positions in the step. seqs: slices. new_seqs: admissions.
    partial_prefills: prompts that are cut. reserve_blocks: blocks that admissions must leave free
    (the largest wins).
    """

    tokens: int | None = None
    prefill_tokens: int | None = None
    seqs: int | None = None
    new_seqs: int | None = None
    partial_prefills: int | None = None
    reserve_blocks: int | None = None


class PrefillNeed(NamedTuple):
    """One prompt that could be computed in this step: `need` positions are left."""

    request: RequestView
    need: int


class QuotaView(NamedTuple):
    """The prompts that a step could work on, and how many positions the step has for them.

    waiting_tokens: known positions of all who wait; 0 when the next of them cannot be admitted in
    this step, whatever quotas say, because no seat or too few blocks are free.
    """

    now: float
    prefills: Sequence[PrefillNeed]
    tokens: int
    waiting_tokens: int


class VictimView(NamedTuple):
    """A shortage: `need` blocks are missing.

    candidates: who may be preempted, in the order in which the core would do it. When the oldest
    running request is in need these are all others; else those that the stack puts behind the one
    in need, and that have got a block further since they were preempted before.
    """

    now: float
    need: int
    candidates: Sequence[RequestView]


class PlanBuilder(Protocol):
    """Plans one step by hand; given to the hook `plan` for this one call.

    Each method acts at once and returns whether it was possible: it keeps the budget, the seats,
    the blocks, and all guarantees of the core. What is impossible, a handle that is unknown, or a
    call after the hook has returned, changes nothing and is False.
    """

    @property
    def tokens_left(self) -> int:
        """Positions that the step still has."""

    @property
    def seats_left(self) -> int:
        """Requests that can still be admitted, as far as seats go."""

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds."""

    @property
    def running(self) -> Sequence[RequestView]:
        """Who holds a seat, in order of admission. Those in need of a decode are `decoding`."""

    @property
    def decoding(self) -> Sequence[RequestView]:
        """Running requests whose next position is that of the token sampled last."""

    @property
    def waiting(self) -> Sequence[RequestView]:
        """Who may be admitted, by arrival. Sorts them: read it once."""

    def need(self, handle: int) -> int:
        """Prompt positions of a running request that are not computed; 0 for all others."""

    def decode(self, handle: int) -> bool:
        """One position for a request of `decoding`; takes a block where its last one is full."""

    def grant(self, handle: int, tokens: int) -> bool:
        """The next 1 to `need` positions of a running request; once per step."""

    def admit(self, handle: int) -> bool:
        """A seat for a waiting request, and the blocks of all its known tokens."""

    def preempt(self, handle: int) -> bool:
        """Take a running request's seat and blocks; it waits again and computes its tokens again.

        Not possible for the oldest, for one that was admitted in this step, and for one that has
        not got a block further since it was preempted before.
        """


class EventKind(IntEnum):
    """What happened to a request."""

    ARRIVED = 0
    ADMITTED = 1
    PREEMPTED = 2
    FINISHED = 3
    ABORTED = 4
    FAILED = 5
    REJECTED = 6


class Event(NamedTuple):
    """One thing that happened; `num_tokens` is the length of the answer so far."""

    kind: EventKind
    request: RequestView
    now: float
    num_tokens: int


Quota = Mapping[int, int]
"""Handle -> most positions of its prompt in this step. A handle that is missing has no limit."""
