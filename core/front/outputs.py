"""What a caller gets back. The names are those that callers of other engines know."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from jackfield.core.api import Logprob
from jackfield.core.front.request_metrics import RequestMetrics

Logprobs = dict[int, Logprob]
"""Token id -> its log-probability, at one position."""


@dataclass(slots=True)
class CompletionOutput:
    """One answer. finish_reason: "stop", "length", "abort", "error", or None while it goes on.

    stop_reason: the stop string or stop id that ended it; None for an end-of-sequence token.
    error: why it failed, when finish_reason is "error".
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[Logprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None

    def finished(self) -> bool:
        """Whether the answer has ended."""
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """All answers to one prompt, so far.

    prompt_logprobs: one entry per prompt token, None for the first; None when not asked for.
    num_cached_tokens: prompt positions that were not computed, because they were there already.
    metrics: None until it is finished.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: Sequence[int]
    outputs: list[CompletionOutput]
    finished: bool = False
    prompt_logprobs: list[Logprobs | None] | None = None
    num_cached_tokens: int = 0
    metrics: RequestMetrics | None = None
