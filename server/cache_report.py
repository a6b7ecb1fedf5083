"""Measurements of the cache, on one screen."""

from typing import TYPE_CHECKING, Any

from jackfield.server.table import table

if TYPE_CHECKING:
    from jackfield.core.bench.cache_lookup import Lookups
    from jackfield.core.bench.cache_shared import Shared
    from jackfield.core.bench.cache_swap import Swap

HEADER = ("", "WITHOUT", "WITH", "CHANGE")


def shared_lines(result: "Shared") -> str:
    """What was asked, and what a common beginning saved."""
    plain, cached = result.prefill
    rows = [
        ("prefill tokens", f"{plain:,}", f"{cached:,}", f"{-result.prefill_saved:.1%}"),
        ("seconds, all at once", *_numbers(result.seconds, ".2f"), _times(*result.seconds)),
        ("ms to the first token of a hit", *_numbers(result.first_ms, ".1f"),
         f"{result.first_speedup:.1f} times as fast"),
    ]  # fmt: skip
    return "\n".join(
        [
            f"shared      {result.requests} requests of {result.shared_tokens:,} common and "
            f"{result.own_tokens} own tokens; {result.hits} hits one after another, "
            f"{result.hit_rate:.1%} of their tokens",
            *_where(result.where),
            "",
            table(HEADER, rows),
        ]
    )


def swap_lines(result: "Swap") -> str:
    """What was played, and what a tier saved."""
    plain, swapped = result.recomputed
    rows = [
        ("recomputed tokens", f"{plain:,}", f"{swapped:,}", f"{-result.recomputed_saved:.1%}"),
        ("answer tokens/s", *_numbers(result.rate, ".1f"), f"{result.rate_change:+.1%}"),
        ("preemptions", *_numbers(result.preemptions, ","), ""),
        ("blocks loaded", "", f"{result.loaded:,}", ""),
        ("blocks stored", "", f"{result.stored:,}", ""),
    ]
    return "\n".join(
        [
            f"swap        {result.conversations} conversations of {result.turns} turns, "
            f"{result.working_set_blocks:,} blocks in a pool of {result.num_blocks:,}; medians of "
            f"{result.rounds} rounds",
            *_where(result.where),
            "",
            table(HEADER, rows),
        ]
    )


def lookup_lines(result: "Lookups") -> str:
    """How long it takes to find a prompt, and what knowing blocks takes."""
    rows = [
        (one.name, f"{one.find_us:,.0f}", f"{one.open_us:,.0f}", f"{one.bytes_per_token:.1f}",
         f"{one.found:,}")
        for one in result.indexes
    ]  # fmt: skip
    faults = [f"fault       {one.name}: {one.fault}" for one in result.indexes if one.fault]
    return "\n".join(
        [
            f"lookup      {result.prompt_tokens:,} tokens among {result.cached_blocks:,} blocks; "
            f"hashing them takes {result.hash_us:,.0f} us where the request is made",
            *faults,
            "",
            table(("INDEX", "FIND US", "OPEN US", "BYTES/TOKEN", "BLOCKS FOUND"), rows),
        ]
    )


def _where(where: dict[str, Any]) -> list[str]:
    return [
        f"model       {where['model']}, {where['dtype']}",
        f"device      {where['device']}, {where['threads']} threads",
        f"stack       {', '.join(where['stack']['cache'])}, against the same without the last",
    ]


def _numbers(pair: tuple[float, float], form: str) -> tuple[str, str]:
    return format(pair[0], form), format(pair[1], form)


def _times(without: float, with_it: float) -> str:
    return f"{without / with_it:.1f} times as fast" if with_it else ""
