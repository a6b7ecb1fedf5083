"""What a scrape finds: names, types, labels and bounds, and how many lines that can become."""

import asyncio
import json
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jackfield.core.api import RequestContext
from jackfield.core.front.outputs import CompletionOutput, RequestOutput
from jackfield.server.http.app import create_app
from jackfield.server.http.settings import HttpSettings
from jackfield.server.http.stopwatch import Stopwatch, Waits

LONG = {"max_tokens": 200, "ignore_eos": True}
MODEL = {"model_name": {"tiny"}}
ENGINE = {**MODEL, "engine": {"0"}}
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200)
SECONDS = (
    0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
)  # fmt: skip
TO_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40,
    80, 160, 640, 2560,
)  # fmt: skip
TO_NEXT = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
)  # fmt: skip
STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FINE = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30,
    60,
)  # fmt: skip
GAUGES = {
    "num_requests_running": ENGINE,
    "num_requests_waiting": ENGINE,
    "num_requests_waiting_by_reason": {**ENGINE, "reason": {"capacity", "deferred"}},
    "engine_sleep_state": {
        **ENGINE, "sleep_state": {"awake", "weights_offloaded", "discard_all"},
    },
    "kv_cache_usage_perc": ENGINE,
}  # fmt: skip
COUNTERS = {
    "prefix_cache_queries": ENGINE,
    "prefix_cache_hits": ENGINE,
    "external_prefix_cache_queries": ENGINE,
    "external_prefix_cache_hits": ENGINE,
    "kv_offload_load_bytes": ENGINE,
    "kv_offload_store_bytes": ENGINE,
    "kv_offload_total_bytes": {**ENGINE, "transfer_type": {"CPU_to_GPU", "GPU_to_CPU"}},
    "mm_cache_queries": ENGINE,
    "mm_cache_hits": ENGINE,
    "num_preemptions": ENGINE,
    "prompt_tokens": ENGINE,
    "prompt_tokens_by_source": {
        **ENGINE, "source": {"local_compute", "local_cache_hit", "external_kv_transfer"},
    },
    "prompt_tokens_cached": ENGINE,
    "prompt_tokens_cached_by_source": {
        **ENGINE, "source": {"device", "host", "p2p", "disk", "external_unspecified"},
    },
    "generation_tokens": ENGINE,
    "request_success": {
        **ENGINE, "finished_reason": {"stop", "length", "abort", "error", "repetition"},
    },
    "admission_rejections": {
        **MODEL, "reason": {"max_num_queued_reqs", "max_num_queued_tokens", "policy"},
    },
}  # fmt: skip
HISTOGRAMS: dict[str, tuple[float, ...]] = {
    "request_prompt_tokens": TOKENS,
    "request_generation_tokens": TOKENS,
    "request_max_num_generation_tokens": TOKENS,
    "request_params_max_tokens": TOKENS,
    "request_prefill_kv_computed_tokens": TOKENS,
    "iteration_tokens_total": STEP,
    "request_params_n": (1, 2, 5, 10, 20),
    "request_num_preemptions": (1, 2, 3, 4, 5, 10, 20),
    "time_to_first_token_seconds": TO_FIRST,
    "inter_token_latency_seconds": TO_NEXT,
    "request_time_per_output_token_seconds": TO_NEXT,
    "e2e_request_latency_seconds": SECONDS,
    "request_queue_time_seconds": SECONDS,
    "request_inference_time_seconds": SECONDS,
    "request_prefill_time_seconds": SECONDS,
    "request_decode_time_seconds": SECONDS,
}


class Scrape:
    """The families of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {one.name: one for one in text_string_to_metric_families(text)}

    def labels(self, name: str) -> dict[str, set[str]]:
        """Label -> its values."""
        found: dict[str, set[str]] = {}
        for sample in self.families[name].samples:
            for label, value in sample.labels.items():
                found.setdefault(label, set()).add(value)
        return found

    def value(self, series: str, **labels: str) -> float:
        """The sum of what has these labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == series and labels.items() <= sample.labels.items()
        )


def scrape(site: Any) -> Scrape:
    return Scrape(site.http.get("/metrics").text)


def read_until_all_have_begun(connection: socket.socket) -> None:
    """Each of eight answers has sent two pieces."""
    seen = b""
    while any(seen.count(f'"index":{place},'.encode()) < 2 for place in range(8)):
        news = connection.recv(1 << 16)
        assert news, seen
        seen += news


@pytest.fixture(scope="module")
def both(folder: Path, serve: Any) -> Iterator[Any]:
    """After an answer that ended by itself, one by its text, one by its length, and one left."""
    settings = HttpSettings(model_names=("tiny",), metrics_compat="vllm")
    with ExitStack() as stack:
        site = stack.enter_context(serve(folder, settings))
        fixed = {"temperature": 0, "ignore_eos": True}
        text = site.post("/v1/completions", prompt="x", max_tokens=8, **fixed).json()
        ended = text["choices"][0]["text"][3]
        site.post("/v1/completions", prompt="x", max_tokens=8, stop=ended, **fixed)
        site.post("/v1/completions", prompt="x" * 20, max_tokens=3, n=2, **fixed)
        body = json.dumps({"prompt": ["x"] * 8, "stream": True, **LONG}).encode()
        connection = site.raw("/v1/completions", body)
        read_until_all_have_begun(connection)
        connection.close()
        site.settled()
        site.http.get("/made/up")
        yield site


def test_names_types_labels_and_bounds_that_dashboards_know(both: Any) -> None:
    found = scrape(both)
    for kind, table in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name, labels in table.items():
            assert found.families[f"vllm:{name}"].type == kind, name
            assert found.labels(f"vllm:{name}") == labels, name
    for name, bounds in HISTOGRAMS.items():
        family = found.families[f"vllm:{name}"]
        assert family.type == "histogram", name
        written = {*map(str, map(float, bounds)), "+Inf"}
        assert found.labels(family.name) == {**ENGINE, "le": written}, name
        assert {sample.name.removeprefix(family.name) for sample in family.samples} == {
            "_bucket", "_count", "_sum",
        }, name  # fmt: skip
    names = {name for name in found.families if name.startswith("vllm:")}
    known = {*GAUGES, *COUNTERS, *HISTOGRAMS, "cache_config_info"}
    assert names == {f"vllm:{name}" for name in known}


def test_what_is_known_of_the_cache(both: Any) -> None:
    found = scrape(both)
    assert found.labels("vllm:cache_config_info") == {
        "block_size": {"8"}, "num_gpu_blocks": {"192"}, "kv_cache_size_tokens": {"1536"},
        "kv_cache_memory_bytes": {str(both.llm.summary.kv_bytes)}, "cache_dtype": {"float32"},
        "kv_cache_max_concurrency": {"6.0"}, "engine": {"0"},
    }  # fmt: skip
    assert found.value("vllm:cache_config_info") == 1
    assert found.labels("jackfield_cache_config_info")["num_blocks"] == {"192"}


def test_http_requests_by_handler(both: Any) -> None:
    found = scrape(both)
    post = {"handler": "/v1/completions", "method": "POST"}
    assert found.value("http_requests_total", **post, status="2xx") == 3
    assert found.value("http_requests_total", **post, status="left") == 1
    assert found.value("http_requests_total", handler="none", status="4xx") == 1
    assert found.value("http_request_duration_seconds_count", **post) == 4
    assert found.labels("http_request_duration_seconds")["le"] == {"0.1", "0.5", "1.0", "+Inf"}
    fine = found.labels("http_request_duration_highr_seconds")["le"]
    assert fine == {*map(str, map(float, FINE)), "+Inf"}
    every = found.value("http_requests_total")
    assert found.value("http_request_duration_highr_seconds_count") == every
    for le in ("0.1", "0.5", "1.0"):
        coarse = found.value("http_request_duration_seconds_bucket", le=le)
        assert coarse == found.value("http_request_duration_highr_seconds_bucket", le=le)
    assert found.value("process_resident_memory_bytes") > 0


def test_numbers_after_a_few_answers(both: Any) -> None:
    """Four answers ended by themselves, of three requests; eight were left by their client."""
    found = scrape(both)
    length = len(both.llm.tokenizer.encode("x"))
    for reason, count in (("stop", 1), ("length", 3), ("abort", 8), ("error", 0)):
        assert found.value("jackfield_answers_total", reason=reason) == count
        assert found.value("vllm:request_success_total", finished_reason=reason) == count
    assert found.value("jackfield_request_seconds_count") == 4
    assert found.value("jackfield_request_answers_count") == 3
    assert found.value("jackfield_request_answers_sum") == 4
    assert found.value("jackfield_request_longest_answer_tokens_count") == 3
    assert found.value("vllm:request_params_max_tokens_sum") == 8 + 8 + 3 + 3
    long = len(both.llm.tokenizer.encode("x" * 20))
    prompts = found.value("jackfield_request_prompt_tokens_sum")
    assert prompts == 2 * length + 2 * long
    cached = long - 1  # the second answer to the same prompt has all but the last position
    assert found.value("jackfield_prompt_tokens_total", source="cached") == cached
    assert found.value("vllm:prompt_tokens_total") == prompts + 8 * length
    assert found.value("vllm:prompt_tokens_cached_total") == cached
    assert found.value("jackfield_time_to_first_token_seconds_count") == 3 + 8
    gaps = found.value("jackfield_inter_token_latency_seconds_count")
    # The eight that were left sent two pieces each; how others were cut into pieces is a race.
    assert 8 <= gaps < found.value("jackfield_output_tokens_total")
    steps = found.value("jackfield_steps_total")
    assert found.value("jackfield_step_tokens_count") == steps
    positions = found.value("jackfield_step_tokens_sum")
    decoded = positions - found.value("jackfield_prefill_tokens_total")
    assert 0 < decoded < found.value("jackfield_output_tokens_total")


def test_gauges_fall_when_everybody_has_gone(both: Any) -> None:
    found = scrape(both)
    assert found.value("jackfield_engine_up") == 1
    for name in ("requests_running", "requests_waiting", "requests_parked", "kv_usage"):
        assert found.value(f"jackfield_{name}") == 0
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert found.value(f"vllm:{name}") == 0
    assert found.value("jackfield_http_requests_in_flight") == 1


def test_without_compatibility_there_are_own_names_and_the_processs(site: Any) -> None:
    found = scrape(site)
    starts = {name.partition("_")[0] for name in found.families}
    assert starts == {"jackfield", "process", "python"}
    assert found.value("process_cpu_seconds_total") > 0
    assert "_created" not in found.text


def test_no_series_tells_when_it_was_made(both: Any) -> None:
    assert "_created" not in scrape(both).text


async def sent(app: Any, method: str, path: str, body: bytes = b"", **more: Any) -> int:
    """The status of the response."""
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "scheme": "http",
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": ("x", 1),
        "server": ("x", 1), "headers": [(b"content-type", b"application/json")], **more,
    }  # fmt: skip
    await app(scope, receive, send)
    return int(statuses[0])


def test_names_that_clients_make_up_add_nothing(site: Any) -> None:
    """Thousands of paths, methods, models and tenants, in an application beside the site's."""
    numbers = random.Random(0)

    def tenant(caller: Any) -> RequestContext:
        name = f"tenant{numbers.random()}"
        return RequestContext(tenant=name, tier=name, labels={name: name})

    settings = HttpSettings(identify=(("anybody", tenant),), metrics_compat="vllm")
    app = create_app(site.llm, settings)
    metrics = app.state.service.metrics

    async def crowd(count: int) -> int:
        for place in range(count):
            name = f"made-up-{numbers.random()}"
            assert await sent(app, "GET", f"/{name}") == 404
            body = json.dumps({"prompt": "x", "model": name, "user": name}).encode()
            assert await sent(app, "POST", "/v1/completions", body) == 404
            if place % 50 == 0:
                await sent(app, name.upper(), f"/v1/models/{name}")
                await sent(app, "GET", f"/v1/models/{name}")
                await sent(app, "GET", f"/debug/requests/{name}")
        return len(metrics.text().splitlines())

    first = asyncio.run(crowd(1))
    assert asyncio.run(crowd(5000)) == first
    assert b"made-up" not in metrics.text() and b"tenant" not in metrics.text()


def output(*tokens: int, finish: str | None = None) -> RequestOutput:
    return RequestOutput("a", "x", [1], [CompletionOutput(0, "", [*tokens], finish_reason=finish)])


def test_waits_are_counted_from_the_first_token() -> None:
    waits = Waits()
    watch = Stopwatch(waits, 2)
    watch.news(1, output(finish="error"))
    assert sum(waits.first_token.counts().counts) == 0
    watch.news(0, output(5))
    watch.news(0, output(5, 6))
    watch.news(1, output(5))
    watch.news(0, output(5, 6, 7))
    assert sum(waits.first_token.counts().counts) == 2
    assert sum(waits.between.counts().counts) == 2
