"""One request inside the engine: the record that only the engine writes, and its public view."""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from jackfield.core.api import FinishReason, RequestContext, SamplingParams
from jackfield.core.engine.decisions import Decision

if TYPE_CHECKING:
    from jackfield.core.engine.group import Group
    from jackfield.core.engine.late import LateBinder
    from jackfield.core.engine.node import Leaf
    from jackfield.core.kv.request_chain import RequestChain

NO_SEAT = -1
NO_POSITION = -1


class Status(Enum):
    """Where a request is. Only RUNNING holds a seat and blocks."""

    NEW = "new"
    WAITING = "waiting"
    PARKED = "parked"
    RUNNING = "running"
    FINISHED = "finished"


ALLOWED = {
    Status.NEW: {Status.WAITING, Status.PARKED, Status.FINISHED},
    Status.WAITING: {Status.RUNNING, Status.PARKED, Status.FINISHED},
    Status.PARKED: {Status.WAITING, Status.PARKED, Status.FINISHED},
    Status.RUNNING: {Status.WAITING, Status.PARKED, Status.FINISHED},
    Status.FINISHED: set(),
}


class Request:
    """The record. `total` counts known and in-flight tokens, `computed` those planned so far.

    total - computed positions are still to be planned: 1 while decoding. `room` positions fit its
    blocks. `unseen` tokens are sampled in steps that have not been collected. `ends` holds all
    ids that end it, `limit` is the longest it gets. `fed` is the position of the token that the
    device sampled last on its seat. `first_cached` is `num_cached` of the first seat. `told` is
    `num_preemptions` when timings were handed over last, -1 before. `since` is when it got its
    status, `decision` the last that was recorded of it. `chain` is what the cache knows of it.
    """

    __slots__ = (
        "admitted_at", "arrival", "banned", "binder", "blocks", "chain", "computed", "context",
        "decision", "ends", "eos_ids", "failure", "fed", "finish", "first_cached",
        "first_token_at", "group", "handle", "id", "index", "last_token_at", "leaf", "limit",
        "max_tokens", "num_cached", "num_preemptions", "output", "params", "progress_mark",
        "prompt", "prompt_scores", "recompute_until", "room", "seat", "seed", "since", "status",
        "told", "total", "unseen", "view",
    )  # fmt: skip

    def __init__(
        self,
        handle: int,
        request_id: str,
        index: int,
        prompt: Sequence[int],
        params: SamplingParams,
        context: RequestContext,
        *,
        arrival: float,
        seed: int,
        max_tokens: int,
        eos_ids: frozenset[int],
    ) -> None:
        self.handle = handle
        self.id = request_id
        self.index = index
        self.prompt = prompt
        self.params = params
        self.context = context
        self.arrival = arrival
        self.since = arrival
        self.decision: Decision | None = None
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None
        self.last_token_at: float | None = None
        self.first_cached = 0
        self.told = -1
        self.seed = seed
        self.max_tokens = max_tokens
        self.limit = len(prompt) + max_tokens
        self.eos_ids = frozenset() if params.ignore_eos else eos_ids
        self.ends = self.eos_ids | frozenset(params.stop_token_ids or ())
        self.output: list[int] = []
        self.total = len(prompt)
        self.computed = 0
        self.unseen = 0
        self.status = Status.NEW
        self.seat = NO_SEAT
        self.fed = NO_POSITION
        self.blocks: list[int] = []
        self.room = 0
        self.num_preemptions = 0
        self.num_cached = 0
        self.progress_mark = 0
        self.recompute_until = 0
        self.prompt_scores: dict[int, Any] = {}
        self.finish: FinishReason | None = None
        self.failure: str | None = None
        self.group: Group | None = None
        self.leaf: Leaf | None = None
        self.chain: RequestChain | None = None
        self.banned: tuple[int, ...] = ()
        self.binder: LateBinder | None = None
        self.view = View(self)

    def move(self, status: Status) -> None:
        """Change the status; an illegal change is a fault of the engine."""
        assert status in ALLOWED[self.status], f"{self.id}: {self.status} to {status}"
        self.status = status

    @property
    def num_sampled(self) -> int:
        """Tokens of the answer, those in flight included."""
        return self.total - len(self.prompt)

    @property
    def need(self) -> int:
        """Positions that could be planned now; 0 when the answer's last token is under way."""
        if self.max_tokens and self.total >= self.limit:
            return 0
        return self.total - self.computed

    def shorten(self, max_tokens: int) -> None:
        """The answer has at most so many tokens; before anything of it is planned."""
        self.max_tokens = max_tokens
        self.limit = len(self.prompt) + max_tokens

    @property
    def prompt_left(self) -> int:
        """Positions of the prompt that were never planned."""
        return max(len(self.prompt) - max(self.computed, self.recompute_until), 0)

    def again(self, length: int) -> int:
        """How many of the next positions were computed before, and lost in a preemption."""
        return min(max(self.recompute_until - self.computed, 0), length)

    @property
    def decodes(self) -> bool:
        """Whether the only position left is that of the token on the device."""
        return self.fed == self.computed == self.total - 1

    @property
    def wants_prompt_scores(self) -> bool:
        """Whether the prompt's log-probabilities are collected on this request."""
        return self.params.prompt_logprobs is not None and self.index == 0

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self.status is Status.FINISHED

    @property
    def num_known(self) -> int:
        """Tokens that are known on the host."""
        return len(self.prompt) + len(self.output)

    def tokens(self, start: int, length: int) -> list[int]:
        """Known tokens of a range of positions."""
        split = len(self.prompt)
        end = start + length
        if end <= split:
            return list(self.prompt[start:end])
        head = list(self.prompt[start:split]) if start < split else []
        return head + self.output[max(start - split, 0) : end - split]


class View:
    """What policies see of a request; nothing can be written through it."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        object.__setattr__(self, "_request", request)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a request's view is read-only; {name!r} cannot be set")

    _request: Request

    @property
    def handle(self) -> int:
        return self._request.handle

    @property
    def id(self) -> str:
        return self._request.id

    @property
    def arrival(self) -> float:
        return self._request.arrival

    @property
    def context(self) -> RequestContext:
        return self._request.context

    @property
    def num_prompt_tokens(self) -> int:
        return len(self._request.prompt)

    @property
    def num_output_tokens(self) -> int:
        return len(self._request.output)

    @property
    def num_computed_tokens(self) -> int:
        return self._request.computed

    @property
    def num_prompt_tokens_left(self) -> int:
        return self._request.prompt_left

    @property
    def num_preemptions(self) -> int:
        return self._request.num_preemptions

    @property
    def max_tokens(self) -> int:
        return self._request.max_tokens
