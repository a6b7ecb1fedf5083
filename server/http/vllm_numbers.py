"""The engine's numbers under the names that vLLM gives them, for dashboards made for these."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from jackfield.server.http.backend import Backend
from jackfield.server.http.engine_numbers import REASONS, cache_facts, kv_usage
from jackfield.server.http.families import Families, by
from jackfield.server.http.stopwatch import Waits

if TYPE_CHECKING:
    from jackfield.core.engine.snapshot import Snapshot
    from jackfield.core.kv.cache_snapshot import CacheSnapshot

ENGINE = "0"
HISTOGRAMS = (
    ("prompt_tokens", "request_prompt_tokens", "Prompt tokens of a request."),
    ("output_tokens", "request_generation_tokens", "Generated tokens of a request."),
    ("step_tokens", "iteration_tokens_total", "Tokens of one step."),
    ("longest_answer", "request_max_num_generation_tokens", "Tokens of the longest answer."),
    ("answers", "request_params_n", "The parameter n."),
    ("max_tokens", "request_params_max_tokens", "The parameter max_tokens."),
    ("seconds_per_token", "request_time_per_output_token_seconds", "Mean after the first token."),
    ("request_seconds", "e2e_request_latency_seconds", "Arrival at the engine to the end."),
    ("queue_seconds", "request_queue_time_seconds", "Time in the queue."),
    ("inference_seconds", "request_inference_time_seconds", "First seat to the last token."),
    ("prefill_seconds", "request_prefill_time_seconds", "First seat to the first token."),
    ("decode_seconds", "request_decode_time_seconds", "First token to the last."),
    ("preemptions", "request_num_preemptions", "Preemptions of a request."),
    ("computed_prompt_tokens", "request_prefill_kv_computed_tokens", "Computed prompt tokens."),
)
"""Name of the distribution, name, meaning."""
ABSENT = (
    ("mm_cache_queries", "Always 0."),
    ("mm_cache_hits", "Always 0."),
)
"""Of things that Jackfield does not have; boards and alerts still find the names."""


class VllmNumbers(Collector):
    """Reads the same statistics as Jackfield's own names."""

    def __init__(self, backend: Backend, waits: Waits, model_name: str) -> None:
        self._backend = backend
        self._waits = waits
        self._families = Families("vllm:", {"model_name": model_name, "engine": ENGINE})
        self._by_model = Families("vllm:", {"model_name": model_name})
        self._by_engine = Families("vllm:", {"engine": ENGINE})

    def collect(self) -> Iterator[Metric]:
        now = self._backend.metrics()
        yield from self._gauges(now)
        yield from self._tokens(now)
        yield from self._offloaded(now.cache)
        yield from self._requests(now)
        yield from self._histograms(now)
        for name, meaning in ABSENT:
            yield self._families.counter(name, meaning, 0)

    def _gauges(self, now: "Snapshot") -> Iterator[Metric]:
        make, waiting = self._families, now.waiting + now.parked
        reasons = by({"capacity": now.waiting, "deferred": now.parked})
        states = by({"awake": 1, "weights_offloaded": 0, "discard_all": 0})
        yield make.gauge("num_requests_running", "Answers that hold a seat.", now.running)
        yield make.gauge("num_requests_waiting", "Answers that hold none.", waiting)
        yield make.gauges(
            "num_requests_waiting_by_reason", "Queued, or behind a gate.", ("reason",), reasons
        )
        yield make.gauges("engine_sleep_state", "Always awake.", ("sleep_state",), states)
        yield make.gauge("kv_cache_usage_perc", "Share of the KV blocks in use.", kv_usage(now))
        facts = _config(self._backend)
        values = {tuple(facts.values()): 1.0}
        yield self._by_engine.gauges("cache_config_info", "The cache.", tuple(facts), values)

    def _tokens(self, now: "Snapshot") -> Iterator[Metric]:
        make, cache = self._families, now.cache
        computed, cached = now.computed_prompt_tokens, now.cached_prompt_tokens
        sources = {"local_compute": computed, "local_cache_hit": cached}
        places = ("host", "p2p", "disk", "external_unspecified")
        yield make.counter("prefix_cache_queries", "Tokens of new requests.", cache.queried_tokens)
        yield make.counter("prefix_cache_hits", "Those that were there.", cache.hit_tokens)
        yield make.counter("prompt_tokens", "Prompt tokens.", computed + cached)
        yield make.counters(
            "prompt_tokens_by_source", "Computed, or there already.",
            ("source",), by(sources, "external_kv_transfer"),
        )  # fmt: skip
        yield make.counter("prompt_tokens_cached", "Those that were there.", cached)
        yield make.counters(
            "prompt_tokens_cached_by_source", "All on the device.",
            ("source",), by({"device": cached}, *places),
        )  # fmt: skip
        yield make.counter("generation_tokens", "Tokens of answers.", now.output_tokens)

    def _offloaded(self, now: "CacheSnapshot") -> Iterator[Metric]:
        make, summary = self._families, self._backend.summary
        block_bytes = summary.kv_bytes // summary.num_blocks
        loaded = sum(tier.loaded for tier in now.tiers.values())
        stored = next((tier.stored for tier in now.tiers.values()), 0)
        hits = loaded * summary.block_size
        missed = now.queried_tokens + now.resumed_queried_tokens
        missed -= now.hit_tokens + now.resumed_hit_tokens
        asked = missed + hits if now.tiers else 0
        yield make.counter("external_prefix_cache_queries", "Not on the device.", asked)
        yield make.counter("external_prefix_cache_hits", "Loaded from a tier.", hits)
        yield make.counter("kv_offload_load_bytes", "From a tier.", loaded * block_bytes)
        yield make.counter("kv_offload_store_bytes", "To a tier.", stored * block_bytes)
        ways = {"CPU_to_GPU": loaded * block_bytes, "GPU_to_CPU": stored * block_bytes}
        yield make.counters("kv_offload_total_bytes", "Both.", ("transfer_type",), by(ways))

    def _requests(self, now: "Snapshot") -> Iterator[Metric]:
        make = self._families
        yield make.counter("num_preemptions", "Seats that were taken away.", now.preemptions)
        yield make.counters(
            "request_success", "Answers that ended, in whatever way.",
            ("finished_reason",), by(now.finished, *REASONS, "repetition"),
        )  # fmt: skip
        refused = {"policy": sum(now.rejections.values())}
        yield self._by_model.counters(
            "admission_rejections", "Requests that a plugin refused.",
            ("reason",), by(refused, "max_num_queued_reqs", "max_num_queued_tokens"),
        )  # fmt: skip

    def _histograms(self, now: "Snapshot") -> Iterator[Metric]:
        make, waits = self._families, self._waits
        for field, name, meaning in HISTOGRAMS:
            yield make.histogram(name, meaning, now.distributions[field])
        first, between = waits.first_token.counts(), waits.between.counts()
        yield make.histogram("time_to_first_token_seconds", "Until the first token.", first)
        yield make.histogram("inter_token_latency_seconds", "Between tokens.", between)


def _config(backend: Backend) -> dict[str, str]:
    facts = cache_facts(backend)
    return {
        "block_size": facts["block_size"],
        "num_gpu_blocks": facts["num_blocks"],
        "kv_cache_size_tokens": facts["num_tokens"],
        "kv_cache_memory_bytes": facts["num_bytes"],
        "kv_cache_max_concurrency": str(backend.summary.full_context_concurrency),
        "cache_dtype": facts["encoding"].partition(",")[0],
    }
