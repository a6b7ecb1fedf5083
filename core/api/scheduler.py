"""Scheduling policies: a discipline sorts the waiting requests of one level of the stack."""

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from jackfield.core.api.predictor import NO_PREDICTION, Predictor
from jackfield.core.api.request import RequestView

S = TypeVar("S")
Rank = float | tuple[float, ...]
"""Lower goes first. Finite numbers, or tuples of them that all have one length per level."""
MAX_LOOKAHEAD = 64
"""The most requests that `pick` is offered."""


class Overflow:
    """The key of the class that takes the requests of all classes beyond `engine.max_classes`."""

    def __repr__(self) -> str:
        return "OVERFLOW"


OVERFLOW: Final = Overflow()
"""The one key of that class. A discipline that reads `ClassState.key` can meet it."""


class PolicyConfig(BaseModel):
    """Base of a plugin's own configuration section: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Work(NamedTuple):
    """Tokens that were planned for one class in one step, by kind.

    prefill: positions of prompts. decode: of answers. Neither counts what was computed before.
    recompute: positions computed again after a preemption; fairness should not bill them.
    cached: prompt positions that were found in a cache and not computed.
    """

    prefill: int = 0
    decode: int = 0
    cached: int = 0
    recompute: int = 0

    def plus(self, other: "Work") -> "Work":
        """The sum, kind by kind."""
        prefill, decode, cached, recompute = other
        return Work(
            self.prefill + prefill, self.decode + decode,
            self.cached + cached, self.recompute + recompute,
        )  # fmt: skip


def _nothing_cached(request: RequestView) -> int:
    return 0


def _not_ordered(request: RequestView) -> None:
    return None


@dataclass(slots=True)
class PolicyContext:
    """What the engine lends a policy: its clock, its randomness, its limits and its knowledge.

    rng is the policy's own generator, seeded by the engine, so that runs repeat. now() is the
    engine's clock in seconds; a policy never reads another clock.

    cached_tokens(request): how many tokens of the prompt another request has computed already, so
    that they would be shared if it were admitted now. Asked of the cache once per step and
    request, then remembered; asking touches nothing.

    rekey(request): ask `Discipline.classify` of all levels again, and `key` if the request waits,
    at the next look at the queue or the next step. A request of another class moves there with
    all that it counts for, whether it waits or runs; what it was charged stays where it was. For
    a policy whose order depends on what it learnt later; ignored once the request has ended.

    predict: how long steps take; see `Predictor`.

    block_size: positions that fit a block of the KV pool, which `LoadView` counts.

    The three services start to work when the engine is built, after all constructors.
    """

    rng: random.Random
    now: Callable[[], float]
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    cached_tokens: Callable[[RequestView], int] = _nothing_cached
    rekey: Callable[[RequestView], None] = _not_ordered
    predict: Predictor = NO_PREDICTION


class ClassState(Generic[S]):
    """One class of a discipline: its key, its size, and the policy's own state.

    `state` is the only field that a policy may write. It is None until the policy sets it. A
    class without requests keeps it for `engine.class_idle_seconds` and is then forgotten.
    """

    __slots__ = ("_key", "_running", "_waiting", "state")

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._waiting = 0
        self._running = 0
        self.state: S | None = None

    @property
    def key(self) -> Hashable:
        """What `classify` returned, or `OVERFLOW`."""
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

    lookahead: how many requests `pick` chooses from, at most 64; below 2 it is not called.

    adds_up: promises that the work of some steps may as well be charged at once. Then a class is
    charged after 8 steps at the latest, and before it is asked or told anything else, which makes
    many classes cheap; ranks lag that much behind.

    preempt_margin: how much lower the rank of a waiting request's class must be than that of a
    running one to take its seat; None = who runs is never displaced at this level. It may be a
    property of the instance. Compared are the first numbers of both ranks, at the first level
    where the two requests' classes differ, when the head of the queue lacks a seat or blocks. Who
    is displaced computes its tokens again later. The oldest running request is never displaced,
    nobody before it has got a block further than the last time, and nobody unless the head can
    then be admitted. Where ranks move with every charge, a margin of some steps' work keeps two
    classes from displacing each other again and again.
    """

    Config: type[PolicyConfig] = PolicyConfig
    lookahead: ClassVar[int] = 0
    adds_up: ClassVar[bool] = False
    preempt_margin: float | None = None

    def __init__(self, config: Any, context: PolicyContext) -> None:
        self.config = config
        self.context = context

    def classify(self, request: RequestView) -> Hashable:
        """The class of a request at this level. Called once when it starts to wait.

        `PolicyContext.rekey` has it asked again, also while the request runs.
        Beyond `engine.max_classes` classes at one place, new ones share the class `OVERFLOW`.
        """
        return None

    def key(self, request: RequestView, now: float) -> Rank:
        """Order inside a leaf, fixed when the request starts to wait (again after a preemption).

        Asked of the last discipline of a stack only. Ties are broken by arrival, then handle.
        `PolicyContext.rekey` has it asked again.
        """
        return request.arrival

    def rank(self, cls: ClassState[S], now: float) -> Rank:
        """Order among sibling classes. Asked again only for classes that were touched.

        A class is touched when a request of it starts or stops waiting, when it is charged, or
        when its `eligible_at` has come. Classes of equal rank take turns: who was admitted from
        last goes last.
        """
        return 0.0

    def eligible_at(self, cls: ClassState[S], now: float) -> float:
        """Engine time before which no request of the class is admitted; in the past: it may be.

        Asked together with `rank`, and again when that time has come. Nothing admits a request of
        a class that is held back, neither the starvation valve nor the fallback for empty steps,
        but one that arrived longer ago than `engine.park_timeout` goes next, whatever is said
        here. Infinity leaves it to that, or to the next touch.
        """
        return 0.0

    def pick(self, heads: Sequence[RequestView], now: float) -> int:
        """Choose who is admitted next from a leaf: an index into `heads`, its first in key order.

        Called only of the last discipline of a stack that sets `lookahead`, for each admission
        and whenever the queue of the leaf changed, with 2 to `lookahead` requests. A request that
        was passed over 8 * `lookahead` times is taken without asking. Any other answer than an
        index counts as a fault and as 0.
        """
        return 0

    def charge(self, cls: ClassState[S], work: Work) -> None:
        """Work planned for the class in this step. Called at most once per class and step.

        With `adds_up`: since the last call, and before anything else is asked or told of the class.
        """

    def activate(self, cls: ClassState[S], active_min: S | None) -> None:
        """A class that had neither waiting nor running requests gets one.

        active_min: the smallest `state` among its active siblings; when there is none, that of
        the sibling, or of this class itself, that was active last; None when none ever was.
        """

    def admitted(self, cls: ClassState[S], request: RequestView) -> None:
        """A request of the class holds a seat from now on; `cls.running` counts it already.

        Called once per admission, before anybody else is chosen, so that ranks asked later in the
        same step know of it; also for a running request that `PolicyContext.rekey` has moved here,
        and for all who run when the tree is built anew after another plugin's faults.
        """

    def left(self, cls: ClassState[S], request: RequestView) -> None:
        """The counterpart of `admitted`: it has ended, lost its seat, or moved to another class.

        Who is preempted leaves when its step is planned. `cls.running` no longer counts it.
        """

    def keep(self, request: RequestView, now: float) -> Rank:
        """Which running request to preempt last (leaf only): the lowest is preempted first.

        Called for each candidate when memory is short. Default: the last arrived goes first.
        """
        return -request.arrival
