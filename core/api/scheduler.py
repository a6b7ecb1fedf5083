"""Scheduling policies: disciplines order the waiting requests, advisors limit what a step does."""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from jackfield.core.api.request import RequestView

S = TypeVar("S")
Rank = float | tuple[float, ...]
"""Lower goes first. Finite numbers, or tuples of them that all have one length per level."""


class PolicyConfig(BaseModel):
    """Base of a plugin's own configuration section: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Work(NamedTuple):
    """Tokens that were planned for one class in one step, by kind.

    recompute: positions computed again after a preemption; fairness should not bill them.
    cached: prompt positions that were found in a cache and not computed.
    """

    prefill: int = 0
    decode: int = 0
    cached: int = 0
    recompute: int = 0

    def plus(self, other: "Work") -> "Work":
        """The sum, kind by kind."""
        return Work(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(slots=True)
class PolicyContext:
    """What the engine lends a policy: its clock, its randomness and its limits.

    rng is the policy's own generator, seeded by the engine, so that runs repeat. now() is the
    engine's clock in seconds; a policy never reads another clock.
    """

    rng: random.Random
    now: Callable[[], float]
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


class ClassState(Generic[S]):
    """One class of a discipline: its key, its size, and the policy's own state.

    `state` is the only field that a policy may write. It is None until the policy sets it.
    """

    __slots__ = ("_key", "_running", "_waiting", "state")

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._waiting = 0
        self._running = 0
        self.state: S | None = None

    @property
    def key(self) -> Hashable:
        """What `classify` returned."""
        return self._key

    @property
    def waiting(self) -> int:
        """Requests of this class that wait for admission."""
        return self._waiting

    @property
    def running(self) -> int:
        """Requests of this class that hold a seat."""
        return self._running


class Discipline(Generic[S]):
    """Base class of a policy that orders. Methods have neutral defaults: override what you need.

    All methods run in the engine's thread, must return at once, and may change nothing but
    `ClassState.state` and their own attributes. One that raises, or returns what is no rank, is
    contained; after some faults its level of the stack falls back to first come first served.
    """

    Config: type[PolicyConfig] = PolicyConfig

    def __init__(self, config: Any, context: PolicyContext) -> None:
        self.config = config
        self.context = context

    def classify(self, request: RequestView) -> Hashable:
        """The class of a request at this level. Called once when it starts to wait."""
        return None

    def key(self, request: RequestView, now: float) -> Rank:
        """Order inside a leaf, fixed when the request starts to wait (again after a preemption).

        Asked of the last discipline of a stack only. Ties are broken by arrival, then handle.
        """
        return request.arrival

    def rank(self, cls: ClassState[S], now: float) -> Rank:
        """Order among sibling classes. Asked again only for classes that were touched.

        A class is touched when a request of it starts or stops waiting, or when it is charged.
        """
        return 0.0

    def charge(self, cls: ClassState[S], work: Work) -> None:
        """Work planned for the class in this step. Called at most once per class and step."""

    def activate(self, cls: ClassState[S], active_min: S | None) -> None:
        """A class that had neither waiting nor running requests gets one.

        active_min: the smallest `state` among its active siblings, None when there is none.
        """

    def keep(self, request: RequestView, now: float) -> Rank:
        """Which running request to preempt last (leaf only): the lowest is preempted first.

        Called for each candidate when memory is short. Default: the last arrived goes first.
        """
        return -request.arrival


class VerdictKind(IntEnum):
    """From the mildest to the most restrictive; the most restrictive of all advisors holds."""

    ACCEPT = 0
    DEFER = 1
    REJECT = 2


class Verdict(NamedTuple):
    """What an advisor says of an arriving request.

    until: for DEFER, the engine time of the next question. code and retry_after (seconds): for
    REJECT, told to the caller.
    """

    kind: VerdictKind
    code: str = ""
    until: float = 0.0
    retry_after: float = 0.0

    @staticmethod
    def accept() -> "Verdict":
        """Let it wait for a seat."""
        return _ACCEPT

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
    """How busy the engine is: counts of requests, tokens and blocks."""

    now: float
    waiting: int
    parked: int
    running: int
    waiting_tokens: int
    free_blocks: int
    total_blocks: int


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
    """The prompts that a step could work on, and how many positions the step has for them."""

    now: float
    prefills: Sequence[PrefillNeed]
    tokens: int


class VictimView(NamedTuple):
    """A shortage: `need` blocks are missing. candidates: who may be preempted, oldest first."""

    now: float
    need: int
    candidates: Sequence[RequestView]


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
