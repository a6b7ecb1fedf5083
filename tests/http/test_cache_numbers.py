"""What a scrape tells of the KV cache."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jackfield.core.kv.cache_snapshot import CacheSnapshot, TierSnapshot
from jackfield.plugins.cache.swap.host_store import HostStore
from jackfield.server.http.engine_numbers import EngineNumbers
from jackfield.server.http.settings import HttpSettings
from jackfield.server.http.vllm_numbers import VllmNumbers

GREEDY = {"temperature": 0, "ignore_eos": True, "max_tokens": 4}
TOTALS = {
    "cached_blocks_published": 11, "cached_blocks_evicted": 12, "cached_blocks_dropped": 13,
    "blocks_copied": 14, "loads_declined": 15, "pins_refused": 16,
}  # fmt: skip
TIERS = {
    "host": TierSnapshot(100, 90, 80, 70, 6, 5, False),
    "disk": TierSnapshot(1000, 900, 80, 30, 1, 0, True),
}
KNOWN = CacheSnapshot(1, 2, 3, 4, 5, 6, 700, 80, 90, 10, 11, 12, 13, 14, 15, 16, TIERS)


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Values of the labels, without those that every series of a model has -> number."""
    found = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]
    assert found, name
    shared = ("model_name", "engine")
    return {
        tuple(value for label, value in one.labels.items() if label not in shared): one.value
        for one in found
    }


class Backend:
    """A backend whose cache has these numbers, and whose other numbers are another's."""

    def __init__(self, real: Any, cache: CacheSnapshot) -> None:
        self._real = real
        self._cache = cache
        self.summary = real.summary

    def metrics(self) -> Any:
        return self._real.metrics()._replace(cache=self._cache, total_blocks=10)

    def health(self) -> Any:
        return self._real.health()


def scrape(real: Any, cache: CacheSnapshot) -> str:
    """Both sets of names."""
    from jackfield.server.http.stopwatch import Waits

    registry = CollectorRegistry(auto_describe=False)
    backend: Any = Backend(real, cache)
    registry.register(EngineNumbers(backend))
    registry.register(VllmNumbers(backend, Waits(), "tiny"))
    return generate_latest(registry).decode()


@pytest.fixture
def text(site: Any) -> str:
    return scrape(site.llm, KNOWN)


def test_every_number_of_the_cache_has_its_series(text: str) -> None:
    states = {("live",): 1, ("cached",): 2, ("free",): 3, ("moving",): 4}
    assert values(text, "jackfield_kv_blocks_by_state") == states
    assert values(text, "jackfield_cached_contents") == {(): 5}
    assert values(text, "jackfield_pinned_blocks") == {(): 6}
    queried = values(text, "jackfield_prefix_cache_queried_tokens_total")
    assert queried == {("first",): 700, ("again",): 90}
    hits = values(text, "jackfield_prefix_cache_hit_tokens_total")
    assert hits == {("first",): 80, ("again",): 10}
    for name, value in TOTALS.items():
        assert values(text, f"jackfield_{name}_total") == {(): value}, name


def test_every_tier_has_its_series(text: str) -> None:
    expected = {
        "blocks": (100, 1000), "used_blocks": (90, 900), "stored_blocks_total": (80, 80),
        "loaded_blocks_total": (70, 30), "failed_transfers_total": (6, 1),
        "late_transfers_total": (5, 0), "off": (0, 1),
    }  # fmt: skip
    for name, (host, disk) in expected.items():
        found = values(text, f"jackfield_tier_{name}")
        assert found == {("host",): host, ("disk",): disk}, name


def test_only_live_blocks_are_usage(text: str) -> None:
    assert values(text, "jackfield_kv_usage") == {(): 0.1}
    assert values(text, "vllm:kv_cache_usage_perc") == {(): 0.1}


def test_names_of_dashboards(site: Any, text: str) -> None:
    """Of new requests 700 tokens; tiers: what was not on the device, and what they had of it."""
    block_bytes = site.llm.summary.kv_bytes // site.llm.summary.num_blocks
    assert values(text, "vllm:prefix_cache_queries_total") == {(): 700}
    assert values(text, "vllm:prefix_cache_hits_total") == {(): 80}
    assert values(text, "vllm:external_prefix_cache_hits_total") == {(): 100 * 8}
    assert values(text, "vllm:external_prefix_cache_queries_total") == {(): 700 + 100 * 8}
    assert values(text, "vllm:kv_offload_load_bytes_total") == {(): 100 * block_bytes}
    assert values(text, "vllm:kv_offload_store_bytes_total") == {(): 80 * block_bytes}
    both = values(text, "vllm:kv_offload_total_bytes_total")
    assert both == {("CPU_to_GPU",): 100 * block_bytes, ("GPU_to_CPU",): 80 * block_bytes}


def test_without_tiers_nothing_is_asked_of_them(site: Any) -> None:
    text = scrape(site.llm, KNOWN._replace(tiers={}))
    for name in ("external_prefix_cache_queries", "external_prefix_cache_hits",
                 "kv_offload_load_bytes", "kv_offload_store_bytes"):  # fmt: skip
        assert values(text, f"vllm:{name}_total") == {(): 0}, name


def test_a_prompt_that_comes_again_is_a_hit_and_no_usage(folder: Path, serve: Any) -> None:
    with serve(folder, HttpSettings(metrics_compat="vllm")) as site:
        length = len(site.llm.tokenizer.encode("a" * 45))
        for _ in range(2):
            site.post("/v1/completions", prompt="a" * 45, **GREEDY)
        site.settled()
        text = site.http.get("/metrics").text
    hits = (length - 1) // 8 * 8
    assert values(text, "jackfield_prefix_cache_hit_tokens_total")[("first",)] == hits > 0
    assert values(text, "vllm:prefix_cache_queries_total") == {(): 2 * length}
    assert values(text, "vllm:prefix_cache_hits_total") == {(): hits}
    states = values(text, "jackfield_kv_blocks_by_state")
    assert states[("cached",)] > 0 and states[("live",)] == states[("moving",)] == 0
    assert sum(states.values()) == 192
    assert values(text, "jackfield_kv_usage") == {(): 0}
    facts = [
        sample.labels
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "jackfield_cache_config_info"
    ]
    assert facts[0]["encoding"] == "float32"
    assert int(facts[0]["bytes_per_token"]) * 1536 == int(facts[0]["num_bytes"])


def test_a_tier_of_a_running_engine(folder: Path, serve: Any) -> None:
    swap = {"cache.stack": ["paged", "prefix", "swap"], "cache.swap.memory": "1MiB"}
    with serve(folder, num_gpu_blocks_override=32, **swap) as site:
        for number in range(8):
            site.post("/v1/completions", prompt=f"{number}" * 60, **GREEDY)
        site.settled()
        text = site.http.get("/metrics").text
    assert values(text, "jackfield_tier_blocks")[("host",)] > 0
    assert values(text, "jackfield_tier_stored_blocks_total")[("host",)] > 0
    assert values(text, "jackfield_tier_off") == {("host",): 0}


def test_blocks_of_transfers_come_back_while_nobody_asks(
    folder: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later request has to come by for it."""
    may_end = Event()
    target = HostStore.target
    monkeypatch.setattr(HostStore, "target", lambda *asked: may_end.wait(20) and target(*asked))
    swap = {"cache.stack": ["paged", "prefix", "swap"], "cache.swap.memory": "1MiB"}
    with serve(folder, num_gpu_blocks_override=32, **swap) as site:
        engine = site.llm.assembly.engine
        for number in range(2):
            site.post("/v1/completions", prompt=f"{number}" * 60, **GREEDY)
        site.until(lambda: not engine.has_work)
        assert engine.has_transfers and engine.lifecycle.planner.pool.num_free < 32
        may_end.set()
        site.settled()
