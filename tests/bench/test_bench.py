"""Measurements: what is run, what it is compared with, what is reported."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, __version__
from jackfield.core.api import ConfigError, ContextLengthExceeded, EngineStoppedError, LayerGroup
from jackfield.core.bench.device_figures import DeviceFigures
from jackfield.core.bench.machine import measure_machine
from jackfield.core.bench.model_outline import ModelOutline
from jackfield.core.bench.planning import Crowd, measure_planning
from jackfield.core.bench.provenance import git_revision
from jackfield.core.bench.roofline import (
    Machine,
    ModelCost,
    PairCost,
    decode_seconds,
    ideal_seconds,
    prefill_seconds,
)
from jackfield.core.bench.shapes import SHAPES, write_shape
from jackfield.core.bench.throughput import run_throughput
from jackfield.core.bench.workloads import Fixed, make_workload
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.host.sources import load_config
from jackfield.core.host.stack import load_model_class
from jackfield.core.testing.tiny_model import VOCAB, write_tiny_model
from jackfield.server.bench_report import throughput_table

CHECKSUMS = {
    "cpu16": "17bc48e684303a44",
    "one": "1e130ed6feced952",
    "mixed": "199c6f016a1bff73",
    "chat20": "a3513284ac3863e5",
    "shared": "1e2d1b7865477599",
    "long": "2b3deb6a45f7d8b5",
    "crowd": "0cb10cb5aa1fb7a3",
}
H200 = Machine(bandwidth=4.8e12, flops=790e12)
FIELDS = {
    "model", "dtype", "device", "ranks", "threads", "stack", "git_revision", "versions",
    "workload", "run", "requests", "prompt_tokens", "cached_prompt_tokens", "output_tokens",
    "seconds", "output_tokens_per_second", "total_tokens_per_second", "wave_ms", "steps",
    "preemptions", "planning_us_p50", "planning_us_p99", "step_ms_p50", "step_ms_p99",
    "roofline_share", "roofline_seconds", "bandwidth", "flops", "temperature",
    "step_ms_histogram", "experts",
    *DeviceFigures._fields,
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKSUMS)
def test_a_workload_is_the_same_everywhere(name: str) -> None:
    made = make_workload(name)
    text = json.dumps([made.prompts, made.lengths]).encode()
    assert hashlib.sha256(text).hexdigest()[:16] == CHECKSUMS[name]
    assert made.concurrency == {"one": 1, "chat20": 20, "crowd": 1000}.get(name)


def test_shared_beginnings_are_counted() -> None:
    made = make_workload("shared")
    seen: set[tuple[int, ...]] = set()
    for prompt, common in zip(made.prompts, made.shared, strict=True):
        head = tuple(prompt[:2048])
        assert common == (2048 if head in seen else 0)
        seen.add(head)


def test_numbers_of_a_workload() -> None:
    made = make_workload("tokens", largest=9, fixed=Fixed(5, 7, 3))
    assert (made.num_prompt_tokens, made.num_output_tokens, made.longest) == (35, 15, 10)
    assert max(max(prompt) for prompt in made.prompts) <= 9
    assert made.waves() == [slice(0, 5)]
    assert made._replace(concurrency=2).waves() == [slice(0, 2), slice(2, 4), slice(4, 6)]


def test_an_unknown_workload_or_shape_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown workload 'mixd'\. Did you mean 'mixed'\?"):
        make_workload("mixd")
    with pytest.raises(ConfigError, match=r"unknown shape 'qwen3'\. Did you mean 'qwen3-"):
        write_shape("qwen3", tmp_path)
    with pytest.raises(ConfigError, match="output_tokens of a workload is 0"):
        make_workload("tokens", fixed=Fixed(output_tokens=0))


def cost_of(shape: str) -> ModelCost:
    config = SHAPES[shape]
    model: Any = load_model_class(config["architectures"][0]).cls
    outline = ModelOutline.of(model, config, torch.bfloat16)
    return ModelCost.of(outline, 2 * outline.spec.num_kv_heads * outline.spec.head_dim * 2)


@pytest.mark.parametrize(
    ("shape", "gigabytes"),
    [("qwen3-0.6b", 1.192), ("qwen3-8b", 15.14), ("qwen2.5-7b", 14.14), ("llama-3-8b", 15.01)],
)
def test_weights_that_a_step_reads(shape: str, gigabytes: float) -> None:
    assert cost_of(shape).weight_bytes / 1e9 == pytest.approx(gigabytes, rel=1e-3)


@pytest.mark.parametrize(
    ("shape", "workload", "seconds"),
    [
        ("qwen3-0.6b", "mixed", 3.345),
        ("qwen3-0.6b", "chat20", 0.410),
        ("qwen3-0.6b", "shared", 1.887),
        ("qwen3-0.6b", "long", 4.538),
        ("qwen3-8b", "mixed", 9.879),
        ("qwen3-8b", "chat20", 3.981),
    ],
)
def test_the_roofline_of_a_known_model(shape: str, workload: str, seconds: float) -> None:
    found = ideal_seconds(make_workload(workload), cost_of(shape), H200)
    assert found == pytest.approx(seconds, rel=1e-3)


def test_one_decode_step_by_hand() -> None:
    cost = ModelCost(
        900, 100, 2000, 10.0, PairCost(4, 4), (LayerGroup((0, 1)), LayerGroup((2,), window=8))
    )
    machine = Machine(bandwidth=1000.0, flops=1000.0)
    cached = 2 * (20 + 4) + 1 * (8 + 4)
    assert decode_seconds([20, 4], cost, machine) == 4.0 + 10 * cached / 1000
    assert decode_seconds([20], cost, machine) == 2.0 + 10 * (2 * 20 + 8) / 1000


def test_one_prompt_by_hand() -> None:
    cost = ModelCost(
        900, 100, 2000, 10.0, PairCost(4, 4), (LayerGroup((0, 1)), LayerGroup((2,), window=8))
    )
    machine = Machine(bandwidth=1.0, flops=1.0)
    pairs = 2 * 20**2 / 2 + (8**2 / 2 + 8 * 12)
    assert prefill_seconds(0, 20, cost, machine) == 2 * 900 * 20 + 200 + 4 * pairs
    later = 2 * (20**2 - 10**2) / 2 + 8 * 10
    assert prefill_seconds(10, 20, cost, machine) == 2 * 900 * 10 + 200 + 4 * later


def test_a_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackfield.core.bench.machine.SECONDS_EACH", 0.0)
    found = measure_machine(torch.device("cpu"), torch.float32)
    assert 1e8 < found.bandwidth < 1e13
    assert 1e8 < found.flops < 1e15


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = write_tiny_model(tmp_path_factory.mktemp("model"))
    small: dict[str, Any] = {"kernel.stack": ["torch"], "engine.threads": 1}
    with LLM(folder, progress=SilentProgress(), num_gpu_blocks_override=64, **small) as made:
        yield made


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1e9, 1e10)
    monkeypatch.setattr("jackfield.core.bench.throughput.measure_machine", lambda *_: machine)


@pytest.mark.usefixtures("quick")
def test_each_run_reports_everything(llm: LLM) -> None:
    workload = make_workload("tokens", largest=VOCAB - 1, fixed=Fixed(6, 10, 5))
    runs = [run.as_dict() for run in run_throughput(llm, workload, repeat=2)]
    assert [run["run"] for run in runs] == [0, 1]
    for run in runs:
        assert set(run) == FIELDS
        assert json.loads(json.dumps(run)) == run
        assert (run["requests"], run["prompt_tokens"], run["output_tokens"]) == (6, 60, 30)
        assert (run["steps"], run["temperature"], run["wave_ms"]) == (5, 0.6, None)
        assert run["output_tokens_per_second"] == pytest.approx(30 / run["seconds"], rel=0.01)
        assert run["total_tokens_per_second"] == pytest.approx(90 / run["seconds"], rel=0.01)
        assert 0 < run["planning_us_p50"] <= run["planning_us_p99"]
        assert 0 < run["step_ms_p50"] <= run["step_ms_p99"]
        bounds = [row["up_to_ms"] for row in run["step_ms_histogram"]]
        assert bounds == sorted(set(bounds)) and bounds[-1] >= run["step_ms_p99"] >= bounds[0] / 2
        assert sum(row["steps"] for row in run["step_ms_histogram"]) == 5
        assert {run[name] for name in DeviceFigures._fields} == {None}
        assert run["dtype"] == "float32"
        assert run["versions"]["jackfield"] == __version__
        assert run["stack"]["kernel"] == ["torch"]


@pytest.mark.usefixtures("quick")
def test_the_share_uses_the_loaded_models_sizes(llm: LLM) -> None:
    workload = make_workload("tokens", largest=VOCAB - 1, fixed=Fixed(2, 10, 3))
    [run] = run_throughput(llm, workload, greedy=True)
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64
    cost = ModelCost(2 * layer + 64, 300 * 64, 4 * (2 * layer + 64 + 300 * 64), 256.0,
                     PairCost(256, 256), (LayerGroup((0, 1)),))  # fmt: skip
    expected = ideal_seconds(workload, cost, Machine(1e9, 1e10))
    assert run.roofline_seconds == pytest.approx(expected, abs=1e-4)
    assert run.roofline_share == pytest.approx(expected / run.seconds, rel=0.02, abs=1e-4)
    assert run.temperature == 0.0


@pytest.mark.usefixtures("quick")
def test_prompts_that_were_there_are_counted(llm: LLM) -> None:
    head = list(range(32))
    workload = make_workload("tokens", largest=VOCAB - 1, fixed=Fixed(3, 40, 2))
    prompts = [head + prompt[32:] for prompt in workload.prompts]
    [run] = run_throughput(llm, workload._replace(prompts=prompts))
    assert run.cached_prompt_tokens == 2 * 32
    assert "53%" in throughput_table([run])


@pytest.mark.usefixtures("quick")
def test_waves_run_one_after_the_other(llm: LLM) -> None:
    workload = make_workload("tokens", largest=VOCAB - 1, fixed=Fixed(6, 4, 5))
    [run] = run_throughput(llm, workload._replace(concurrency=2))
    assert run.steps == 3 * 5
    assert run.wave_ms == pytest.approx(1e3 * run.seconds / 3, rel=0.01, abs=0.1)


@pytest.mark.usefixtures("quick")
def test_a_workload_that_does_not_fit_is_refused(llm: LLM) -> None:
    with pytest.raises(ContextLengthExceeded, match="prompt 0"):
        list(run_throughput(llm, make_workload("tokens", largest=9, fixed=Fixed(2, 500, 5))))


@pytest.mark.usefixtures("quick")
def test_an_answer_that_is_cut_short_is_no_result(llm: LLM) -> None:
    workload = make_workload("tokens", largest=9, fixed=Fixed(2, 250, 50))
    with pytest.raises(EngineStoppedError, match="it ended after 6 of 50 tokens"):
        list(run_throughput(llm, workload))


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_planning_is_timed_with_a_full_house(policy: str) -> None:
    resolved = load_config(flags={"scheduling_policy": policy, "kernel.stack": ["torch"]})
    result = measure_planning(resolved, Crowd(running=8, waiting=30, steps=200))
    assert result.steps == 200
    assert result.waiting == 30
    assert 6 <= result.running <= 8
    assert result.admissions >= 8
    assert 0 < result.planning_us_p50 <= result.planning_us_p99
    assert "fcfs" in result.stack["scheduler"]
    assert result.faults == {}
    assert set(result.as_dict()) == {
        "steps", "running", "waiting", "admissions", "planning_us_p50", "planning_us_p99", "stack",
        "faults", "versions",
    }  # fmt: skip


def test_a_crowd_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="running is 0; it must be at least 1"):
        measure_planning(load_config(), Crowd(running=0))
    with pytest.raises(ConfigError, match="waiting is -1; it must be at least 0"):
        measure_planning(load_config(), Crowd(waiting=-1))


def test_an_installed_package_has_no_revision(tmp_path: Path) -> None:
    module = tmp_path / "site-packages" / "jackfield" / "__init__.py"
    (tmp_path / ".git").mkdir()
    assert git_revision(module) is None
    tree = tmp_path / "tree" / "src" / "jackfield" / "__init__.py"
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    (tmp_path / "tree" / "pyproject.toml").write_text("")
    assert git_revision(tree) is None
