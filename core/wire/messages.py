"""Everything that crosses between the front's process and the engine's, as msgpack arrays.
"""

from typing import Any

from msgspec import Struct

from jackfield.core.api import CacheHints, FinishReason, Trust
from jackfield.core.engine.decisions import Decision
from jackfield.core.engine.listing import Query, RequestPage
from jackfield.core.engine.messages import Rejection
from jackfield.core.engine.snapshot import Snapshot
from jackfield.core.engine.steps import TokenScore
from jackfield.core.engine.timings import Timings
from jackfield.core.host.fingerprint import Identity
from jackfield.core.host.origin import Origin


class Start(Struct, tag="start", array_like=True, frozen=True):
    """The first message to the engine: its configuration, and where each value came from."""

    config: dict[str, Any]
    origins: dict[str, Origin]


class Context(Struct, array_like=True, frozen=True):
    """Who asks. deadline: seconds from now, since clocks of two processes may differ."""

    tenant: str
    tier: str
    priority: int
    deadline: float | None
    labels: dict[str, str]
    trust: Trust
    cache: CacheHints


class Add(Struct, tag="add", array_like=True, frozen=True):
    """A request. params: the fields of `SamplingParams` that are not the default. keys: of the
    full blocks of the prompt, one after another."""

    id: str
    prompt: list[int]
    params: dict[str, Any]
    context: Context
    banned: list[list[int]]
    keys: bytes


class Abort(Struct, tag="abort", array_like=True, frozen=True):
    """End a request, or one of its answers."""

    id: str
    index: int | None
    finish: FinishReason


class Explain(Struct, tag="explain", array_like=True, frozen=True):
    """Ask for the decisions about a request. The answer carries the same ticket."""

    ticket: int
    id: str


class Ask(Struct, tag="ask", array_like=True, frozen=True):
    """Ask who is in the engine. The answer carries the same ticket."""

    ticket: int
    query: Query


class Reset(Struct, tag="reset", array_like=True, frozen=True):
    """Ask to forget all cached blocks. The answer carries the same ticket."""

    ticket: int


class Shutdown(Struct, tag="shutdown", array_like=True, frozen=True):
    """Stop. drain: finish what has been accepted first."""

    drain: bool


class Working(Struct, tag="working", array_like=True, frozen=True):
    """The start has begun a piece of work. total: in units of `Advanced`, None if not known."""

    label: str
    total: int | None


class Advanced(Struct, tag="advanced", array_like=True, frozen=True):
    """The work is so many units further."""

    count: int


class Worked(Struct, tag="worked", array_like=True, frozen=True):
    """The piece of work has ended."""


class Limits(Struct, array_like=True, frozen=True):
    """What the door checks, so that a front refuses at once what can never work.

    shares_blocks: whether the front makes keys of blocks.
    """

    vocab_size: int
    max_model_len: int
    pool_tokens: int
    block_size: int
    shares_blocks: bool = False


class Hello(Struct, tag="hello", array_like=True, frozen=True):
    """The engine is ready. plugins: what it selected. summary: the fields of `Summary`."""

    version: str
    digest: str
    plugins: list[Identity]
    limits: Limits
    summary: dict[str, Any]
    snapshot: Snapshot


class Failed(Struct, tag="failed", array_like=True, frozen=True):
    """The start failed. kind: the class of the error."""

    kind: str
    message: str


class DeltaMessage(Struct, array_like=True, gc=False):
    """News of one answer; see the engine's `Delta`."""

    id: str
    index: int
    tokens: list[int]
    finish: FinishReason | None
    stop: int | None
    scores: list[TokenScore]
    prompt_scores: dict[int, TokenScore] | None
    error: str | None
    num_cached: int
    timings: Timings | None
    rejection: Rejection | None


class Deltas(Struct, tag="deltas", array_like=True):
    """All news of one step."""

    deltas: list[DeltaMessage]


class Refused(Struct, tag="refused", array_like=True, frozen=True):
    """A request was not accepted. kind: the class of the error; the rest are its fields."""

    id: str
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None


class Explained(Struct, tag="explained", array_like=True, frozen=True):
    """All that is known of a request, oldest first."""

    ticket: int
    decisions: list[Decision]


class Listed(Struct, tag="listed", array_like=True, frozen=True):
    """Who is in the engine."""

    ticket: int
    page: RequestPage


class WasReset(Struct, tag="was_reset", array_like=True, frozen=True):
    """done: false if blocks are in use, so that nothing was forgotten."""

    ticket: int
    done: bool


class Heartbeat(Struct, tag="heartbeat", array_like=True, frozen=True):
    """Sent at least twice a second, during steps too.

    busy: seconds since the step under way began, 0 between steps.
    """

    busy: float
    snapshot: Snapshot


class Died(Struct, tag="died", array_like=True, frozen=True):
    """The engine is about to exit because of this."""

    reason: str


Command = Start | Add | Abort | Explain | Ask | Reset | Shutdown
News = (
    Hello
    | Failed
    | Working
    | Advanced
    | Worked
    | Deltas
    | Refused
    | Explained
    | Listed
    | WasReset
    | Heartbeat
    | Died
)
