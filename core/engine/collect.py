"""From a step's result to tokens, stops and deltas."""

from collections.abc import Sequence

from jackfield.core.api import FinishReason
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.messages import Delta
from jackfield.core.engine.reasons import Code
from jackfield.core.engine.request import Request, Status
from jackfield.core.engine.steps import Slice, StepPlan, StepResult, TokenScore
from jackfield.core.engine.timings import timings_of


def collect(
    lifecycle: Lifecycle, plan: StepPlan, requests: Sequence[Request], result: StepResult
) -> None:
    """Apply a result in the order of the plan. Requests that ended meanwhile take nothing."""
    first = 0
    tokens, scores, now = result.tokens, result.scores, lifecycle.now()
    is_plain = not scores and not result.failures
    for part, request, count in zip(plan.slices, requests, result.counts, strict=True):
        last = first + count
        if count == 1 and is_plain and _goes_on(request, part, tokens[first]):
            _append(lifecycle, request, tokens[first:last], now)
            first = last
            continue
        if request.status is Status.FINISHED:
            first = last
            continue
        if request.handle in result.failures:
            reason = result.failures[request.handle]
            lifecycle.end(request, FinishReason.ERROR, error=reason, code=Code.ANSWER_FAILED)
        else:
            found = [scores[i] for i in range(first, last)] if first in scores else ()
            if part.scores:
                request.prompt_scores.update(result.prompt_scores[request.handle])
            _settle(lifecycle, request, part, tokens[first:last], found, now)
        first = last


def _goes_on(request: Request, part: Slice, token: int) -> bool:
    """Whether nothing happens but that one more token is there, as for most at every step."""
    return (
        request.status is Status.RUNNING
        and request.told == request.num_preemptions  # it has had its first token
        and not part.scores
        and token not in request.ends
        and len(request.output) + 1 < request.max_tokens
    )


def _append(lifecycle: Lifecycle, request: Request, tokens: list[int], now: float) -> None:
    lifecycle.planner.settle(request, 1, tokens)
    lifecycle.metrics.output_tokens += 1
    request.last_token_at = now
    delta = Delta(request.id, request.index, tokens)
    delta.num_cached = request.first_cached
    lifecycle.outbox.append(delta)


def _settle(
    lifecycle: Lifecycle,
    request: Request,
    part: Slice,
    tokens: list[int],
    scores: Sequence[TokenScore],
    now: float,
) -> None:
    lifecycle.planner.settle(request, part.samples, tokens)
    finish, stop = None, None
    if tokens:
        tokens, finish, stop = _until_stop(request, tokens)
        lifecycle.metrics.output_tokens += len(tokens)
        request.last_token_at = now
        if request.first_token_at is None:
            request.first_token_at = now
            lifecycle.prompt_done(request)
    elif not request.max_tokens and part.start + part.length >= len(request.prompt):
        finish = FinishReason.LENGTH
        lifecycle.prompt_done(request)
    if finish is None and not tokens:
        return
    delta = Delta(request.id, request.index, tokens, num_cached=request.first_cached)
    if scores:
        delta.scores = scores[: len(tokens)]
    if part.scores and part.start + part.length >= len(request.prompt):
        delta.prompt_scores = request.prompt_scores
    if finish is not None:
        lifecycle.end(request, finish, stop=stop, delta=delta)
        return
    if request.told != request.num_preemptions:
        request.told = request.num_preemptions
        delta.timings = timings_of(request, now)
    lifecycle.outbox.append(delta)
    if request.status is Status.PARKED and not request.unseen:
        lifecycle.wake(request, Code.STEP_COLLECTED, "the step is collected")


def _until_stop(
    request: Request, tokens: list[int]
) -> tuple[list[int], FinishReason | None, int | None]:
    """The tokens that belong to the answer, and how it ends with them, if it does.

    Tokens after the end are taken back from the request's output.
    """
    output, ends, most = request.output, request.ends, request.max_tokens
    length = len(output) - len(tokens)
    for offset, token in enumerate(tokens):
        length += 1
        ended = token in ends and length >= request.params.min_tokens
        if ended or length >= most:
            del output[length:]
            kept = tokens[: offset + 1]
            if not ended:
                return kept, FinishReason.LENGTH, None
            return kept, FinishReason.STOP, None if token in request.eos_ids else token
    return tokens, None, None
