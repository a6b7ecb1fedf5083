"""How many tokens each expert got: counted by steps, read by anybody, shown where it counts."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from prometheus_client import CollectorRegistry, generate_latest

from jackfield import LLM, SamplingParams
from jackfield.core.api import ExpertHistogram
from jackfield.core.bench.expert_loads import ExpertLoad, expert_loads
from jackfield.core.bench.roofline import Machine
from jackfield.core.bench.throughput import run_throughput
from jackfield.core.bench.workloads import Fixed, make_workload
from jackfield.core.engine.expert_reader import ExpertReader
from jackfield.core.engine.snapshot import take_snapshot
from jackfield.core.testing.tiny_llm import tiny_llm
from jackfield.core.testing.tiny_model import VOCAB, write_tiny_model
from jackfield.server.bench_report import throughput_table
from jackfield.server.http.engine_numbers import EngineNumbers

EXPERTS, TOP = 6, 2
SPARSE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": EXPERTS,
    "num_experts_per_tok": TOP, "moe_intermediate_size": 24, "num_hidden_layers": 3,
    "mlp_only_layers": [1], "head_dim": 16,
}  # fmt: skip
GREEDY = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, detokenize=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny_model(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | SPARSE))
    return tmp_path


@pytest.fixture
def llm(folder: Path) -> Iterator[LLM]:
    with tiny_llm(folder, load_format="dummy", max_num_batched_tokens=7, max_num_seqs=4) as made:
        yield made


def generate(llm: LLM) -> int:
    """Positions that were computed."""
    lengths = [1, 9, 20]
    prompts: Any = [{"prompt_token_ids": [10 * n + 3] * length} for n, length in enumerate(lengths)]
    llm.generate(prompts, GREEDY, use_tqdm=False)
    return sum(lengths) + len(lengths) * (GREEDY.max_tokens or 0) - len(lengths)


def test_every_position_of_every_layer_that_has_experts_is_counted(llm: LLM) -> None:
    assert llm.expert_counts() == {0: [0] * EXPERTS, 2: [0] * EXPERTS}
    positions = generate(llm)
    found = llm.expert_counts()
    assert {layer: sum(counts) for layer, counts in found.items()} == {
        0: TOP * positions, 2: TOP * positions,
    }  # fmt: skip
    assert all(max(counts) <= positions for counts in found.values())
    assert take_snapshot(llm.assembly.engine).experts == found


def test_a_model_without_experts_has_none(tmp_path: Path) -> None:
    with tiny_llm(write_tiny_model(tmp_path)) as llm:
        assert llm.expert_counts() == take_snapshot(llm.assembly.engine).experts == {}
        assert b"expert" not in scraped(llm)


def test_a_closed_engine_still_answers(folder: Path) -> None:
    llm = tiny_llm(folder, load_format="dummy")
    llm.close()
    assert llm.expert_counts() == {}


def scraped(llm: LLM) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineNumbers(Backend(llm)))  # type: ignore[arg-type]
    return generate_latest(registry)


class Backend:
    """Just what the numbers are made of."""

    def __init__(self, llm: LLM) -> None:
        self.summary = llm.assembly.summary
        self._engine = llm.assembly.engine

    def metrics(self) -> Any:
        return take_snapshot(self._engine)

    def health(self) -> Any:
        from jackfield.core.front.running import Health

        return Health(None, 0.0, 0.0)


def test_a_scrape_names_layer_and_expert(llm: LLM) -> None:
    generate(llm)
    found = llm.expert_counts()
    lines = scraped(llm).decode().splitlines()
    for layer, counts in found.items():
        for expert, count in enumerate(counts):
            name = f'jackfield_expert_tokens_total{{expert="{expert}",layer="{layer}"}}'
            assert f"{name} {float(count)}" in lines
    assert sum(line.startswith("jackfield_expert_tokens_total") for line in lines) == 2 * EXPERTS


def test_a_benchmark_tells_how_even_they_were(llm: LLM) -> None:
    generate(llm)
    workload = make_workload("tokens", largest=VOCAB - 1, fixed=Fixed(2, 8, 3))
    machine = Machine(bandwidth=1e9, flops=1e9)
    first, second = run_throughput(llm, workload, repeat=2, greedy=True, machine=machine)
    assert first.experts == second.experts, "the same work, without what came before"
    assert [load.layer for load in first.experts] == [0, 2]
    assert {load.tokens for load in first.experts} == {TOP * 2 * (8 + 3 - 1)}
    text = throughput_table([first, second])
    assert "the 2 of 2 layers that are least even" in text
    assert first.as_dict()["experts"][0]["layer"] == 0


def test_loads() -> None:
    before = {1: [5, 5, 5, 5], 7: [0, 0, 0, 0], 9: [3, 0, 0, 0]}
    after = {1: [11, 7, 5, 5], 7: [1, 1, 1, 1], 9: [3, 0, 0, 0]}
    assert expert_loads(before, after) == [
        ExpertLoad(1, 4, 8, 3.0, 0.0, 2), ExpertLoad(7, 4, 4, 1.0, 1.0, 0),
    ]  # fmt: skip
    assert expert_loads({}, {}) == []


def test_many_threads_may_ask() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    counts = torch.arange(12, device=device).view(3, 4)
    reader = ExpertReader(ExpertHistogram([2, 5, 6], counts))
    wanted = {2: [0, 1, 2, 3], 5: [4, 5, 6, 7], 6: [8, 9, 10, 11]}
    found: list[Any] = []

    def ask() -> None:
        found.extend(reader.read() for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 80


def test_it_counts_from_0_on() -> None:
    histogram = ExpertHistogram([1], torch.arange(4).view(1, 4))
    model = SimpleNamespace(expert_histogram=lambda: histogram)
    reader = ExpertReader.of(model)
    assert reader is not None and reader.read() == {1: [0] * 4}
    histogram.counts_LE[0, 2] += 3
    assert reader.read() == {1: [0, 0, 3, 0]}
    assert ExpertReader.of(SimpleNamespace(expert_histogram=lambda: None)) is None
    assert ExpertReader.of(object()) is None
