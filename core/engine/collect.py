"""From a step's result to tokens, stops and deltas."""

from collections.abc import Sequence

from jackfield.core.api import FinishReason
from jackfield.core.engine.lifecycle import Lifecycle
from jackfield.core.engine.messages import Delta
from jackfield.core.engine.request import Request, Status
from jackfield.core.engine.steps import Slice, StepPlan, StepResult, TokenScore


def collect(
    lifecycle: Lifecycle, plan: StepPlan, requests: Sequence[Request], result: StepResult
) -> None:
    """Apply a result in the order of the plan. Requests that ended meanwhile take nothing."""
    first = 0
    for part, request, count in zip(plan.slices, requests, result.counts, strict=True):
        tokens = result.tokens[first : first + count]
        scores = [result.scores[i] for i in range(first, first + count) if i in result.scores]
        first += count
        if request.is_done:
            continue
        failure = result.failures.get(request.handle)
        if failure is not None:
            lifecycle.end(request, FinishReason.ERROR, error=failure)
            continue
        request.prompt_scores.update(result.prompt_scores.get(request.handle, {}))
        _settle(lifecycle, request, part, tokens, scores)


def _settle(
    lifecycle: Lifecycle,
    request: Request,
    part: Slice,
    tokens: list[int],
    scores: list[TokenScore],
) -> None:
    lifecycle.planner.settle(request, part.samples, tokens)
    kept, finish, stop = _stop(request, len(tokens))
    del request.output[len(request.output) - len(tokens) + kept :]
    tokens, scores = tokens[:kept], scores[:kept]
    lifecycle.metrics.output_tokens += kept
    if not request.max_tokens and part.start + part.length >= len(request.prompt):
        finish = FinishReason.LENGTH
    delta = Delta(
        request.id,
        request.index,
        tokens,
        scores=scores,
        prompt_scores=_prompt_scores(request, part),
        num_cached=request.num_cached,
    )
    if finish is not None:
        lifecycle.end(request, finish, stop=stop, delta=delta)
        return
    if tokens:
        lifecycle.outbox.append(delta)
    if request.status is Status.PARKED and not request.unseen:
        lifecycle.wake(request, "the step is collected")


def _stop(request: Request, count: int) -> tuple[int, FinishReason | None, int | None]:
    """How many of the last `count` tokens belong to the answer, and whether it ends with them."""
    output, params = request.output, request.params
    before = len(output) - count
    for offset in range(count):
        length = before + offset + 1
        token = output[length - 1]
        if length >= params.min_tokens:
            if token in request.eos_ids:
                return offset + 1, FinishReason.STOP, None
            if token in request.stop_ids:
                return offset + 1, FinishReason.STOP, token
        if length >= request.max_tokens:
            return offset + 1, FinishReason.LENGTH, None
    return count, None, None


def _prompt_scores(request: Request, part: Slice) -> dict[int, TokenScore] | None:
    reached = part.start < len(request.prompt) <= part.start + part.length
    return request.prompt_scores if part.scores and reached else None
