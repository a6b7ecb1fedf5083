"""What the engine counts, under Jackfield's names."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from jackfield.core.api.output import FinishReason
from jackfield.server.http.backend import PATIENCE, Backend, Patience, trouble
from jackfield.server.http.cache_numbers import cache_numbers
from jackfield.server.http.families import Families, Values, by

if TYPE_CHECKING:
    from jackfield.core.engine.snapshot import Snapshot

REASONS = tuple(reason.value for reason in FinishReason)
TOTALS = (
    ("steps", "steps", "Steps that were planned."),
    ("failed_steps", "failed_steps", "Steps that failed, with all their answers."),
    ("out_of_memory_steps", "out_of_memory_steps", "Of these, for want of memory."),
    ("prompt_tokens", "prefill_tokens", "Known positions that were computed, again or not."),
    ("recomputed_tokens", "recomputed_tokens", "Of these, positions that a preemption lost."),
    ("shared_tokens", "shared_tokens", "Positions that were there when an answer got a seat."),
    ("output_tokens", "output_tokens", "Tokens of answers."),
    ("admissions", "admissions", "Seats that were given, again or not."),
    ("valve_admissions", "valve_admissions", "Of these, by the starvation valve."),
    ("preemptions", "preemptions", "Seats that were taken away."),
    ("class_overflows", "class_overflows", "Requests that shared the class of the overflow."),
)
"""Field of the snapshot, name, meaning."""
HISTOGRAMS = (
    ("request_seconds", "request_seconds", "From the arrival at the engine to the end."),
    ("queue_seconds", "request_queue_seconds", "From the arrival to the first seat."),
    ("prefill_seconds", "request_prefill_seconds", "From the first seat to the first token."),
    ("decode_seconds", "request_decode_seconds", "From the first token to the last."),
    ("inference_seconds", "request_inference_seconds", "From the first seat to the last token."),
    ("seconds_per_token", "time_per_output_token_seconds", "After the first token, the mean."),
    ("prompt_tokens", "request_prompt_tokens", "Length of prompts."),
    ("computed_prompt_tokens", "request_computed_prompt_tokens", "Of these, computed ones."),
    ("output_tokens", "request_output_tokens", "Length of answers."),
    ("max_tokens", "request_max_tokens", "Length that answers may have."),
    ("preemptions", "request_preemptions", "Seats that an answer lost."),
    ("answers", "request_answers", "Answers to one prompt."),
    ("longest_answer", "request_longest_answer_tokens", "Of all answers to one prompt."),
    ("step_tokens", "step_tokens", "Positions of one step."),
)
"""Name of the distribution, name, meaning."""


class EngineNumbers(Collector):
    """Reads the engine's statistics when somebody scrapes, so no number outlives its cause."""

    def __init__(self, backend: Backend, patience: Patience = PATIENCE) -> None:
        self._backend = backend
        self._patience = patience
        self._families = Families("jackfield_", {})

    def collect(self) -> Iterator[Metric]:
        now, make = self._backend.metrics(), self._families
        yield from self._gauges(now)
        yield from cache_numbers(make, now.cache)
        for field, name, meaning in TOTALS:
            yield make.counter(name, meaning, getattr(now, field))
        yield from self._counts(now)
        for field, name, meaning in HISTOGRAMS:
            yield make.histogram(name, meaning, now.distributions[field])

    def _gauges(self, now: "Snapshot") -> Iterator[Metric]:
        make = self._families
        up = trouble(self._backend, self._patience) is None
        yield make.gauge("requests_running", "Answers that hold a seat.", now.running)
        yield make.gauge("requests_waiting", "Answers in the queue.", now.waiting)
        yield make.gauge("requests_parked", "Answers that wait behind a gate.", now.parked)
        yield make.gauge("kv_usage", "Share of the KV blocks that requests hold.", kv_usage(now))
        yield make.gauge("kv_blocks", "KV blocks of the pool.", now.total_blocks)
        yield make.gauge("engine_up", "1 while the engine works.", up)
        found = cache_facts(self._backend)
        facts = {tuple(found.values()): 1.0}
        yield make.gauges("cache_config_info", "How the cache was made.", tuple(found), facts)

    def _counts(self, now: "Snapshot") -> Iterator[Metric]:
        make = self._families
        sources = {"computed": now.computed_prompt_tokens, "cached": now.cached_prompt_tokens}
        yield make.counters(
            "prompt_tokens", "Of prompts that are there: where they came from.",
            ("source",), by(sources),
        )  # fmt: skip
        yield make.counters(
            "answers", "Answers that ended.", ("reason",), by(now.finished, *REASONS)
        )
        plugin = ("plugin",)
        rejected = by(now.rejections)
        yield make.counters("rejections", "Requests that a plugin refused.", plugin, rejected)
        displaced = by(now.displacements)
        yield make.counters("displacements", "Seats taken for others.", plugin, displaced)
        decisions: Values = {
            (action, name): count
            for action, plugins in now.decisions.items()
            for name, count in plugins.items()
        }
        labels = ("action", "plugin")
        yield make.counters("decisions", "What was decided, by whom.", labels, decisions)
        yield make.counters("policy_stalls", "Plans left empty.", plugin, by(now.policy_stalls))
        yield make.counters("plugin_faults", "Faults of plugins.", plugin, by(now.faults))
        if now.experts:
            yield self._experts(now)

    def _experts(self, now: "Snapshot") -> Metric:
        tokens: Values = {
            (str(layer), str(expert)): count
            for layer, counts in now.experts.items()
            for expert, count in enumerate(counts)
        }
        labels = ("layer", "expert")
        meaning = "Tokens that each expert of each layer got."
        return self._families.counters("expert_tokens", meaning, labels, tokens)


def kv_usage(now: "Snapshot") -> float:
    """The share of the pool's blocks that requests hold, 0 to 1; what is only cached is no use."""
    return now.cache.live / now.total_blocks if now.total_blocks else 0.0


def cache_facts(backend: Backend) -> dict[str, str]:
    """What was decided about the cache at the start."""
    summary = backend.summary
    return {
        "block_size": str(summary.block_size),
        "num_blocks": str(summary.num_blocks),
        "num_tokens": str(summary.kv_tokens),
        "num_bytes": str(summary.kv_bytes),
        "dtype": summary.dtype,
        "bytes_per_token": str(summary.kv_bytes_per_token),
        "encoding": summary.kv_encoding,
    }
