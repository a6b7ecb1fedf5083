"""What goes into the engine and what comes out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jackfield.core.api import FinishReason, RequestContext, SamplingParams
from jackfield.core.engine.steps import TokenScore
from jackfield.core.engine.timings import Timings

DEFAULT_CONTEXT = RequestContext()


@dataclass(frozen=True, slots=True)
class NewRequest:
    """One prompt. With params.n > 1 it becomes as many requests, numbered by `index`.

    banned_sequences: token sequences that the answer never contains. keys: of the full blocks of
    the prompt, 16 bytes each, as `core.kv.keys` makes them; b"" = the engine makes them itself.
    """

    id: str
    prompt: Sequence[int]
    params: SamplingParams
    context: RequestContext = DEFAULT_CONTEXT
    banned_sequences: Sequence[Sequence[int]] = field(default=())
    keys: bytes = b""


class Rejection(NamedTuple):
    """An advisor refused the request: a reason for machines, and when to try again.

    retry_after: seconds; 0 = do not.
    """

    code: str
    retry_after: float


@dataclass(slots=True)
class Delta:
    """News of one answer: tokens since the last delta, and the end if it ended.

    stop: the stop id that ended it, None for an end-of-sequence id. scores: one per token when
    wanted. prompt_scores: position -> score, once, when the prompt is computed. timings: with the
    first token, with the first one after a preemption, and with the end. rejection: with the end
    of an answer that was never taken.
    """

    id: str
    index: int
    tokens: Sequence[int]
    finish: FinishReason | None = None
    stop: int | None = None
    scores: Sequence[TokenScore] = ()
    prompt_scores: Mapping[int, TokenScore] | None = None
    error: str | None = None
    num_cached: int = 0
    timings: Timings | None = None
    rejection: Rejection | None = None
