"""Prompts with a common beginning: what is not computed, and how much sooner tokens come."""

from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from jackfield.core.bench.cache_pair import (
    Configure,
    Pair,
    Stacks,
    ask,
    check_numbers,
    computed,
    open_pair,
    saved,
    tokens_for,
)
from jackfield.core.bench.provenance import provenance
from jackfield.core.checkpoint.progress import Progress
from jackfield.core.llm import LLM

STACKS = Stacks(("paged",), ("paged", "prefix"))
SEATS = 16
SLACK = 2


class SharedWork(NamedTuple):
    """So many requests with the same first tokens, then some of their own, then an answer."""

    requests: int = 64
    shared_tokens: int = 1024
    own_tokens: int = 16
    answer_tokens: int = 8


@dataclass(frozen=True, slots=True)
class Shared:
    """Pairs are (without, with). first_ms: median time to the first token of the requests that
    found the beginning, and of the same ones without it. prefill: tokens of prompts that were
    computed when all came at once. seconds: for all of these. where: what was measured on.
    """

    requests: int
    shared_tokens: int
    own_tokens: int
    prompt_tokens: int
    prefill: tuple[int, int]
    prefill_saved: float
    seconds: tuple[float, float]
    hits: int
    hit_rate: float
    first_ms: tuple[float, float]
    first_speedup: float
    where: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure_shared(configure: Configure, work: SharedWork, progress: Progress) -> Shared:
    """Each request alone, in turn on both engines, then all at once on each.

    Alone, a request is sent when the one before has ended, so that no time is spent in a queue.
    Raises `JackfieldError`s.
    """
    check_numbers("shared", work._asdict())
    length = work.shared_tokens + work.own_tokens + work.answer_tokens
    settings = {
        "cache.num_blocks": SEATS * (length // 8 + SLACK),
        "engine.max_num_seqs": SEATS,
    }
    with open_pair(configure, STACKS, settings, progress) as pair:
        prompts = _prompts(pair.without, work)
        for llm in pair:
            ask(llm, [tokens_for(llm, Random(1), length - work.answer_tokens)], 2)
        times, hits, rate = _alone(pair, prompts, progress)
        counts, seconds = _together(pair, prompts, work, progress)
        where = provenance(pair.with_it.assembly)
    plain, cached = (1e3 * median(one) for one in zip(*times, strict=True))
    return Shared(
        requests=work.requests,
        shared_tokens=work.shared_tokens,
        own_tokens=work.own_tokens,
        prompt_tokens=sum(map(len, prompts)),
        prefill=counts,
        prefill_saved=saved(*counts),
        seconds=seconds,
        hits=hits,
        hit_rate=rate,
        first_ms=(round(plain, 3), round(cached, 3)),
        first_speedup=round(plain / cached, 2),
        where=where,
    )


def _prompts(llm: LLM, work: SharedWork) -> list[list[int]]:
    random = Random(0)
    shared = tokens_for(llm, random, work.shared_tokens)
    return [shared + tokens_for(llm, random, work.own_tokens) for _ in range(work.requests)]


def _alone(
    pair: Pair, prompts: list[list[int]], progress: Progress
) -> tuple[list[tuple[float, float]], int, float]:
    """(without, with) for each hit; how many there were; and the share of tokens that were there.

    If none was a hit, the times of all requests.
    """
    times, hits, found = [], [], 0
    _forget(pair)
    progress.start("One after another", 2 * len(prompts))
    try:
        for prompt in prompts:
            plain, _ = _first(pair.without, prompt)
            cached, num_cached = _first(pair.with_it, prompt)
            times.append((plain, cached))
            if num_cached:
                hits.append((plain, cached))
            found += num_cached
            progress.advance(2)
    finally:
        progress.finish()
    return hits or times, len(hits), round(found / sum(map(len, prompts)), 4)


def _first(llm: LLM, prompt: list[int]) -> tuple[float, int]:
    started = perf_counter()
    [output] = ask(llm, [prompt], 1)
    return perf_counter() - started, output.num_cached_tokens


def _together(
    pair: Pair, prompts: list[list[int]], work: SharedWork, progress: Progress
) -> tuple[tuple[int, int], tuple[float, float]]:
    counts, seconds = [], []
    _forget(pair)
    progress.start("All at once", 2)
    try:
        for llm in pair:
            before, started = computed(llm), perf_counter()
            ask(llm, prompts, work.answer_tokens)
            seconds.append(round(perf_counter() - started, 3))
            counts.append(computed(llm) - before)
            progress.advance(1)
    finally:
        progress.finish()
    return (counts[0], counts[1]), (seconds[0], seconds[1])


def _forget(pair: Pair) -> None:
    for llm in pair:
        llm.reset_prefix_cache()
