"""The engine's counters and gauges at one moment, as metrics show them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jackfield.core.engine.loop import Engine
from jackfield.core.engine.metrics import Reservoir
from jackfield.core.histogram import HistogramCounts
from jackfield.core.kv.cache_snapshot import CacheSnapshot, take_cache_snapshot

RECENT = 1024
"""Quantiles are over so many measurements; sorting more would be felt by the running steps."""


class Quantiles(NamedTuple):
    """Of recent durations, in seconds; 0 when nothing was measured."""

    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


class Snapshot(NamedTuple):
    """Gauges are of this moment, counters since the start.

    finished: reason -> answers. rejections, displacements, policy_stalls, faults: plugin -> how
    often. decisions: action -> plugin -> how often. class_overflows: requests that were put into
    a common class. planning, step: times. distributions: see `Distributions`. free_blocks: that can
    be had, cached ones included. experts: layer -> tokens that each of its experts got.
    """

    running: int
    waiting: int
    parked: int
    free_blocks: int
    total_blocks: int
    steps: int
    failed_steps: int
    out_of_memory_steps: int
    prompt_tokens: int
    output_tokens: int
    recomputed_tokens: int
    shared_tokens: int
    computed_prompt_tokens: int
    cached_prompt_tokens: int
    admissions: int
    valve_admissions: int
    preemptions: int
    displacements: dict[str, int]
    decisions: dict[str, dict[str, int]]
    class_overflows: int
    rejections: dict[str, int]
    finished: dict[str, int]
    policy_stalls: dict[str, int]
    faults: dict[str, int]
    planning: Quantiles
    step: Quantiles
    distributions: dict[str, HistogramCounts]
    cache: CacheSnapshot
    experts: dict[int, list[int]]


def take_snapshot(engine: Engine) -> Snapshot:
    """May be called from any thread; numbers of a step under way may be half of it."""
    load, metrics = engine.lifecycle.load(0.0), engine.metrics
    return Snapshot(
        running=load.running,
        waiting=load.waiting,
        parked=load.parked,
        free_blocks=load.free_blocks,
        total_blocks=load.total_blocks,
        steps=metrics.steps,
        failed_steps=metrics.failed_steps,
        out_of_memory_steps=metrics.out_of_memory_steps,
        prompt_tokens=metrics.prompt_tokens,
        output_tokens=metrics.output_tokens,
        recomputed_tokens=metrics.recomputed_tokens,
        shared_tokens=metrics.shared_tokens,
        computed_prompt_tokens=metrics.computed_prompt_tokens,
        cached_prompt_tokens=metrics.cached_prompt_tokens,
        admissions=metrics.admissions,
        valve_admissions=metrics.valve_admissions,
        preemptions=metrics.preemptions,
        displacements=dict(metrics.displacements),
        decisions=_by_action(dict(engine.log.counts)),
        class_overflows=engine.lifecycle.tree.num_overflows,
        rejections=dict(metrics.rejections),
        finished=dict(metrics.finished),
        policy_stalls=dict(metrics.policy_stalls),
        faults=engine.fault_counts(),
        planning=_quantiles(metrics.planning),
        step=_quantiles(metrics.step_times),
        distributions=metrics.distributions.counts(),
        cache=take_cache_snapshot(engine.lifecycle.planner.cache),
        experts={layer: list(counts) for layer, counts in engine.expert_counts().items()},
    )


def _by_action(counts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (action, plugin), count in counts.items():
        found.setdefault(str(action), {})[plugin] = count
    return found


def _quantiles(reservoir: Reservoir) -> Quantiles:
    values = sorted(reservoir.recent(RECENT))
    return Quantiles(_at(values, 0.5), _at(values, 0.9), _at(values, 0.99))


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0
