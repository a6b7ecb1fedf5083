"""Requests of a workload through an engine, with the moment of each token."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from time import perf_counter
from typing import NamedTuple

from jackfield.core.api import EngineStoppedError, FinishReason, SamplingParams
from jackfield.core.bench.workloads import Workload
from jackfield.core.engine.messages import Delta, NewRequest
from jackfield.core.front.prompt_keys import prompt_keys
from jackfield.core.front.quiet import quiet
from jackfield.core.llm import LLM

TEMPERATURE = 0.6


class Stream(NamedTuple):
    """One answer. first: seconds to its first token. gaps: seconds from each token to the next."""

    first: float
    gaps: list[float]


def request_params(workload: Workload, *, greedy: bool) -> list[SamplingParams]:
    """Of each request: answers are as long as the workload says, whatever is sampled."""
    temperature = 0.0 if greedy else TEMPERATURE
    return [
        SamplingParams(temperature=temperature, ignore_eos=True, max_tokens=n, detokenize=False)
        for n in workload.lengths
    ]


def never() -> bool:
    """Go on until all have ended."""
    return False


def play(
    llm: LLM,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    stop: Callable[[], bool] = never,
) -> list[Stream]:
    """Send all at once, and wait until all have ended, or `stop` says so after a step.

    Raises `RequestError`, and `EngineStoppedError` for an answer that was cut short.
    """
    with quiet():
        return _play(llm, prompts, params, stop)


def _play(
    llm: LLM,
    prompts: Sequence[Sequence[int]],
    params: Sequence[SamplingParams],
    stop: Callable[[], bool],
) -> list[Stream]:
    engine = llm.assembly.engine
    started = perf_counter()
    ids = [f"bench-{started}-{place}" for place in range(len(prompts))]
    moments: dict[str, list[float]] = {name: [] for name in ids}
    try:
        for name, prompt, wanted in zip(ids, prompts, params, strict=True):
            keys = prompt_keys(prompt, engine.door_limits)
            engine.add(NewRequest(name, prompt, wanted, keys=keys))
        while engine.has_work and not stop():
            llm.assembly.wait_if_idle()
            deltas, now = engine.step(), perf_counter()
            for delta in deltas:
                _check(delta)
                moments[delta.id] += [now] * len(delta.tokens)
    finally:
        for name in ids:
            engine.abort(name)
        while engine.has_work:  # steps in flight
            engine.step()
    if not stop():
        _check_lengths(moments, params)
    return [_stream(started, times) for times in moments.values() if times]


def _check(delta: Delta) -> None:
    if delta.finish is FinishReason.ERROR:
        raise EngineStoppedError(f"a request of the workload failed: {delta.error}")


def _check_lengths(moments: dict[str, list[float]], params: Sequence[SamplingParams]) -> None:
    for times, wanted in zip(moments.values(), params, strict=True):
        if len(times) != wanted.max_tokens:
            raise EngineStoppedError(
                f"a request of the workload failed: it ended after {len(times)} of "
                f"{wanted.max_tokens} tokens"
            )


def _stream(started: float, times: Sequence[float]) -> Stream:
    gaps = [later - one for one, later in pairwise(times)]
    return Stream(times[0] - started, gaps)
