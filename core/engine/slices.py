"""What a sealed step tells of its requests; their progress is counted by that."""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.engine.request import Request
from jackfield.core.engine.steps import Join, Slice


class Chunk(NamedTuple):
    """Positions of known tokens, given to one request in the step that is being built."""

    request: Request
    start: int
    length: int
    samples: int


def slices_of(requests: Sequence[Request]) -> list[Slice]:
    """Of decodes: one position each. Written for speed: it runs for everybody at every step."""
    slices: list[Slice] = []
    append, make = slices.append, tuple.__new__
    for request in requests:
        start = request.computed
        request.computed = request.fed = start + 1
        request.total += 1
        request.unseen += 1
        append(make(Slice, (request.handle, request.seat, start, 1, None, 1, False)))
    return slices


def slice_of(chunk: Chunk) -> Slice:
    """Of known tokens."""
    request, start, length, samples = chunk
    tokens = request.tokens(start, length)
    request.computed += length
    request.total += samples
    request.unseen += samples
    if samples:
        request.fed = request.computed
    is_first = start < len(request.prompt) and not request.output
    scores = request.wants_prompt_scores and is_first
    return Slice(request.handle, request.seat, start, length, tokens, samples, scores)


def join_of(request: Request) -> Join:
    """Of a request that has just got its seat."""
    return Join(
        seat=request.seat,
        handle=request.handle,
        params=request.params,
        seed=request.seed,
        prompt=request.prompt,
        output=tuple(request.output),
        stop_ids=request.ends,
        banned=request.banned,
        binds_late=request.binder is not None,
    )
