"""What a step of a model costs: weights, experts, latent vectors and ranks, computed by hand."""

from collections.abc import Iterator
from dataclasses import replace
from math import isclose
from typing import Any

import pytest
import torch

from jackfield import LLM
from jackfield.core.api import LayerGroup, ModelSpec, Shard
from jackfield.core.bench.expert_cost import ExpertCost
from jackfield.core.bench.loaded_cost import cost_of
from jackfield.core.bench.model_outline import QUANTIZED, WHOLE, ModelOutline
from jackfield.core.bench.outline_products import title_of
from jackfield.core.bench.roofline import (
    Machine,
    ModelCost,
    PairCost,
    decode_seconds,
    ideal_seconds,
    prefill_seconds,
)
from jackfield.core.bench.shapes import PLAIN, SHAPES, write_shape
from jackfield.core.bench.throughput import run_throughput
from jackfield.core.bench.workloads import Fixed, make_workload
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.host.sources import load_config
from jackfield.core.host.stack import load_model_class

BF16 = 2
SLOW = Machine(bandwidth=1.0, flops=1e30)
"""Only what is read counts."""
WEAK = Machine(bandwidth=1e30, flops=1.0)
"""Only what is multiplied counts."""
LITE_ATTENTION = 2048 * (16 * 192 + 576) + 512 * 16 * 256 + 16 * 128 * 2048 + 512 + 2 * 2048
LITE_EXPERT = 3 * 2048 * 1408
LITE_SPARSE = 64 * 2048 + 2 * LITE_EXPERT  # router and what all share
LITE_BODY = 27 * LITE_ATTENTION + 3 * 2048 * 10_944 + 26 * LITE_SPARSE + 2048
MOE_ATTENTION = 2048 * (32 + 2 * 4) * 128 + 32 * 128 * 2048 + 2 * 128 + 2 * 2048
MOE_EXPERT = 3 * 2048 * 768
MOE_BODY = 48 * (MOE_ATTENTION + 128 * 2048) + 2048


def outline_of(shape: str, shard: Shard = WHOLE, served: Any = QUANTIZED) -> ModelOutline:
    config = SHAPES[shape]
    model: Any = load_model_class(config["architectures"][0]).cls
    return ModelOutline.of(model, config, torch.bfloat16, shard, served)


@pytest.mark.parametrize("shape", PLAIN)
def test_an_outline_has_every_weight_once(shape: str) -> None:
    outline = outline_of(shape)
    tables = 1 if SHAPES[shape]["tie_word_embeddings"] else 2
    routed = sum(one.held * one.weights for one in outline.experts)
    assert outline.weights + routed + tables * outline.head == outline.spec.num_parameters
    assert outline.weight_bytes == BF16 * outline.weights
    assert outline.head_bytes == BF16 * outline.head


@pytest.mark.parametrize(
    ("shape", "billions"),
    [("deepseek-v2-lite", 15.706), ("qwen3-30b-a3b", 30.532), ("qwen3-32b", 32.762)],
)
def test_shapes_are_as_large_as_they_are_known_to_be(shape: str, billions: float) -> None:
    assert outline_of(shape).spec.num_parameters / 1e9 == pytest.approx(billions, abs=1e-3)


def test_deepseek_v2_lite_by_hand() -> None:
    cost = ModelCost.of(outline_of("deepseek-v2-lite"), 576 * BF16)
    head = 102_400 * 2048
    assert cost.head == head
    assert cost.body == LITE_BODY + 26 * 6 * LITE_EXPERT
    assert cost.weight_bytes == BF16 * (LITE_BODY + head)
    assert cost.pairs == PairCost(2 * 16 * (192 + 128), 2 * 16 * (576 + 512))
    for tokens in (1, 20, 256):
        distinct = 64 * (1 - (58 / 64) ** tokens)
        read = cost.weight_bytes + 26 * distinct * LITE_EXPERT * BF16
        cached = 27 * tokens * 1000 * 576 * BF16
        assert isclose(decode_seconds([1000] * tokens, cost, SLOW), read + cached)
    computed = 2 * 20 * (cost.body + head) + 27 * 20 * 1000 * 2 * 16 * (576 + 512)
    assert isclose(decode_seconds([1000] * 20, cost, WEAK), computed)
    prompt = 2 * cost.body * 100 + 2 * head + 27 * 2 * 16 * (192 + 128) * 100**2 / 2
    assert isclose(prefill_seconds(0, 100, cost, WEAK), prompt)


def test_one_token_reads_what_it_multiplies() -> None:
    cost = ModelCost.of(outline_of("qwen3-30b-a3b"), 2 * 4 * 128 * BF16)
    assert cost.body == MOE_BODY + 48 * 8 * MOE_EXPERT
    assert isclose(cost.step_bytes(1), BF16 * (cost.body + cost.head))
    assert cost.step_bytes(100_000) == pytest.approx(
        BF16 * (MOE_BODY + 48 * 128 * MOE_EXPERT + cost.head)
    )
    cached = 48 * 64 * 2000 * 2 * 4 * 128 * BF16
    read = cost.step_bytes(64)
    assert isclose(decode_seconds([2000] * 64, cost, SLOW), read + cached)
    assert cost.pairs == PairCost(4 * 32 * 128, 4 * 32 * 128)


def test_qwen3_8b_awq_by_hand() -> None:
    products = 4096 * (6144 + 4096 + 24_576) + 12_288 * 4096
    norms = 2 * 4096 + 2 * 128
    cost = ModelCost.of(outline_of("qwen3-8b-awq"), 4096.0)
    assert cost.body == 36 * (products + norms) + 4096
    held = products // 2 + products // 128 * 3  # values, and a scale and a zero point of a group
    assert cost.weight_bytes == 36 * (held + BF16 * norms) + BF16 * (4096 + 151_936 * 4096)
    plain = ModelCost.of(outline_of("qwen3-8b-awq", served=()), 4096.0)
    assert plain.weight_bytes == ModelCost.of(outline_of("qwen3-8b"), 4096.0).weight_bytes


def test_experts_of_few_bits_by_hand() -> None:
    outline = outline_of("qwen3-30b-a3b-awq")
    assert {one.weight_bytes for one in outline.experts} == {
        MOE_EXPERT // 2 + MOE_EXPERT // 128 * 3
    }
    attention = 2048 * 5120 + 4096 * 2048
    rest = 48 * (128 * 2048 + 2 * 128 + 2 * 2048) + 2048
    assert outline.weight_bytes == 48 * (attention // 2 + attention // 128 * 3) + BF16 * rest
    dequantized = outline_of("qwen3-30b-a3b-awq", served=("quant_matmul",))
    assert {one.weight_bytes for one in dequantized.experts} == {MOE_EXPERT * BF16}
    assert dequantized.weight_bytes == outline.weight_bytes


@pytest.mark.parametrize("shape", ["qwen3-8b", "qwen3-8b-awq", "deepseek-v2-lite", "qwen3-30b-a3b"])
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_have_a_part_of_what_is_divided(shape: str, size: int) -> None:
    whole, part = (
        ModelCost.of(outline_of(shape, shard), 1.0) for shard in (Shard(), Shard(0, size))
    )
    assert part.pairs.decode * size == whole.pairs.decode
    assert whole.head <= part.head * size < 1.002 * whole.head
    # Norms, routers and what is stored of a token are on every rank.
    assert whole.body < part.body * size < 1.1 * whole.body
    assert whole.step_bytes(16) < part.step_bytes(16) * size < 1.1 * whole.step_bytes(16)


def test_lite_on_two_ranks_by_hand() -> None:
    cost = ModelCost.of(outline_of("deepseek-v2-lite", Shard(0, 2)), 576 * BF16)
    attention = 2048 * (8 * 192 + 576) + 512 * 8 * 256 + 8 * 128 * 2048 + 512 + 2 * 2048
    sparse = 64 * 2048 + LITE_EXPERT
    body = 27 * attention + 3 * 2048 * 5472 + 26 * sparse + 2048
    assert cost.body == body + 26 * 6 * LITE_EXPERT // 2
    assert cost.weight_bytes == BF16 * (body + 51_200 * 2048)
    distinct = 64 * (1 - (58 / 64) ** 8)
    assert isclose(cost.step_bytes(8), cost.weight_bytes + 26 * distinct * LITE_EXPERT // 2 * BF16)


def experts_of(shape: str, shard: Shard = WHOLE) -> ExpertCost:
    found = ExpertCost.of(outline_of(shape, shard))
    assert found is not None
    return found


def test_a_rank_with_whole_experts_reads_its_own() -> None:
    whole, part = experts_of("qwen3-30b-a3b"), experts_of("qwen3-30b-a3b", Shard(0, 4, True))
    assert isclose(part.read(16) * 4, whole.read(16))
    assert part.active * 4 == whole.active
    # All of the tokens go to the last rank's experts.
    after = {layer: [0] * 96 + [10] * 32 for layer in part.layers}
    before = {layer: [0] * 128 for layer in part.layers}
    assert part.counted(before, after).distinct(1).tolist() == [8.0] * 48
    assert part.distinct(1).tolist() == [2.0] * 48


def test_experts_are_as_likely_as_they_were_chosen() -> None:
    cost = experts_of("qwen3-moe-tiny")
    assert cost.distinct(1).tolist() == [4.0] * 3
    assert cost.distinct(3)[0] == pytest.approx(16 * (1 - 0.75**3))
    before = {0: [7] * 16, 1: [3] * 16, 2: [0] * 16}
    after = {0: [17] * 4 + [7] * 12, 1: [3] * 16, 2: [8, 8, 8, 4, 4] + [0] * 11}
    found = cost.counted(before, after)
    assert found.distinct(1).tolist() == [4.0, 4.0, 4.0]
    few = 3 + 2 * (1 - 0.5**5)
    assert found.distinct(5).tolist() == pytest.approx([4.0, 16 * (1 - 0.75**5), few])
    assert found.read(5) == pytest.approx(float(found.distinct(5).sum()) * 3 * 128 * 64 * BF16)


def test_products_are_as_the_model_makes_them() -> None:
    def found(shape: str) -> list[tuple[str, int, int, str]]:
        return list(
            dict.fromkeys(
                (one.title, one.inputs, one.outputs, one.form) for one in outline_of(shape).products
            )
        )

    assert found("deepseek-v2-lite") == [
        ("head", 2048, 102_400, ""),
        ("q_kv_a", 2048, 16 * 192 + 576, ""),
        ("out", 2048, 2048, ""),
        ("gate_up", 2048, 2 * 10_944, ""),
        ("down", 10_944, 2048, ""),
        ("shared_experts gate_up", 2048, 2 * 2816, ""),
        ("shared_experts down", 2816, 2048, ""),
    ]
    assert found("qwen3-30b-a3b-fp8block") == [
        ("head", 2048, 151_936, ""),
        ("qkv", 2048, 5120, "fp8"),
        ("out", 4096, 2048, "fp8"),
        ("router", 2048, 128, ""),
    ]
    assert found("qwen3-0.6b")[0] == ("head", 1024, 151_936, "")


def test_titles() -> None:
    assert title_of(["lm_head.weight"]) == "lm_head"
    layer = "model.layers.0"
    assert title_of([f"{layer}.self_attn.{one}_proj.weight" for one in "qkv"]) == "qkv"
    assert title_of([f"{layer}.mlp.shared_expert.down_proj.weight"]) == "shared_expert down"


def test_a_model_of_which_nothing_is_known() -> None:
    spec = ModelSpec(2, 8, 4, 2, 2, 10, 99, 1.0, (LayerGroup((0, 1)),), 1000)
    cost = ModelCost.plain(spec, 2, 5.0, 2)
    assert (cost.body, cost.head, cost.weight_bytes) == ((1000 - 80) // 2, 40, 1000)
    assert cost.pairs == PairCost(16, 16) and cost.experts is None


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = write_shape("deepseek-v2-tiny", tmp_path_factory.mktemp("shape"))
    small: dict[str, Any] = {
        "kernel.stack": ["torch"], "engine.threads": 1, "load_format": "dummy",
        "skip_tokenizer_init": True, "max_model_len": 64, "num_gpu_blocks_override": 64,
        "dtype": "float32",
    }  # fmt: skip
    with LLM(folder, progress=SilentProgress(), **small) as made:
        yield made


def test_a_run_is_compared_with_the_experts_it_chose(llm: LLM) -> None:
    workload = make_workload("tokens", fixed=Fixed(4, 8, 6))
    before = llm.expert_counts()
    [run] = run_throughput(llm, workload, greedy=True, machine=SLOW)
    cost = cost_of(llm.assembly)
    assert cost.kv_bytes == 80 * 4
    after = {
        layer: [end - begin for begin, end in zip(before[layer], counts, strict=True)]
        for layer, counts in llm.expert_counts().items()
    }
    assert set(after) == {1, 2}
    # Warming up is in what the engine counts, and not in what the run counts.
    assert [load.tokens for load in run.experts] == [4 * 4 * (8 + 5)] * 2
    assert sum(after[1]) > run.experts[0].tokens
    equal = ideal_seconds(workload, cost, SLOW)
    chosen = ideal_seconds(workload, cost.counted(before, llm.expert_counts()), SLOW)
    assert chosen < run.roofline_seconds * 1.05 < equal * 1.1
    assert run.roofline_seconds != round(equal, 4)


def test_the_pool_of_all_ranks_is_divided(llm: LLM) -> None:
    one = cost_of(llm.assembly)
    two = cost_of(replace(llm.assembly, resolved=load_config(flags={"parallel.tensor": 2})))
    assert two.kv_bytes * 2 == one.kv_bytes
    assert two.pairs.decode * 2 == one.pairs.decode
    assert two.weight_bytes < one.weight_bytes


def test_what_cannot_be_outlined_is_said(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("shapes are not enough")

    monkeypatch.setattr("jackfield.core.bench.loaded_cost.ModelOutline.of", fail)
    cost = cost_of(llm.assembly)
    assert cost.experts is None
    assert cost.weight_bytes == 4 * llm.assembly.spec.num_parameters
    assert "counts all parameters for each token" in caplog.text
    assert "shapes are not enough" in caplog.text
