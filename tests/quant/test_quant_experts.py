"""Experts whose weights stay quantized answer like those that the weights stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.plugins.kernels.torch_ops import TorchKernels
from jackfield.plugins.kernels.torch_ops.quant_experts import TorchQuantExperts

CLOSE = 1e-4
PROMPTS = [[1, 2, 3, 5, 8, 13, 21, 34, 55], [200, 100, 50, 25]]
KINDS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
WAYS = ("awq 32", "gptq order", "fp8 block", "int8")
OTHERS = ("awq -1", "gptq asym", "gptq eight", "fp8 tensor", "packed", "int8 asym", "float block")
Make = Callable[..., Any]


def answers(folder: Path, **settings: Any) -> list[Any]:
    params = SamplingParams(
        max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=20, prompt_logprobs=20
    )
    with LLM(
        folder, skip_tokenizer_init=True, num_gpu_blocks_override=32, max_model_len=64,
        progress=SilentProgress(), **{"engine.threads": 1, **settings},
    ) as llm:  # fmt: skip
        prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
        return list(llm.generate(prompts, params, use_tqdm=False))


def chances(output: Any) -> list[dict[int, float]]:
    rows = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
    return [{token: each.logprob for token, each in row.items()} for row in rows]


def require_same(found: list[Any], right: list[Any]) -> None:
    for one, other in zip(found, right, strict=True):
        assert not one.outputs[0].error
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        for row, expected in zip(chances(one), chances(other), strict=True):
            common = row.keys() & expected.keys()
            assert len(common) >= 19
            assert max(abs(row[token] - expected[token]) for token in common) < CLOSE


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reaches the operation, by layer."""
    found: list[Any] = []
    plain = TorchQuantExperts.pack

    def pack(self: TorchQuantExperts, experts: Any, count: int) -> Any:
        made = plain(self, experts, count)
        assert len(made) == count
        found.append(made)
        return made

    monkeypatch.setattr(TorchQuantExperts, "pack", pack)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_what_is_meant(
    kind: str, way: str, mixture: Make, tmp_path: Path, packs: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    made = mixture(kind, way, width=192 if way == "fp8 block" else 64)
    found = answers(made.write(tmp_path / "quantized"))
    assert "dequantized" not in caplog.text
    assert len(packs) == 1 + (not kind.startswith("deepseek"))
    require_same(found, answers(made.write_meant(tmp_path / "meant")))


@pytest.mark.parametrize("way", OTHERS)
def test_every_way_to_quantize(
    way: str, mixture: Make, tmp_path: Path, packs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = mixture("qwen2_moe", way, width=128)
    found = answers(made.write(tmp_path / "quantized"))
    assert "dequantized" not in caplog.text
    assert len(packs) == 2
    require_same(found, answers(made.write_meant(tmp_path / "meant")))


def expert(layer: int, number: int, part: str) -> str:
    return f"model.layers.{layer}.mlp.experts.{number}.{part}_proj.weight"


PARTS = ("gate", "up", "down")
UNCOMMON = "some are stored plain, or so that ranks cannot share them"
SPOILT: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "gate and up": (
        lambda made, other: made.vary(expert(0, 3, "up"), other),
        "gate and up are quantized in different ways, or have their inputs in different orders",
    ),
    "one": (
        lambda made, other: [made.vary(expert(0, 2, part), other) for part in PARTS],
        "they are not all quantized alike",
    ),
    "one is plain": (lambda made, other: made.leave(expert(0, 4, "down")), UNCOMMON),
    "the first is plain": (
        lambda made, other: [made.leave(expert(0, 0, part)) for part in PARTS], UNCOMMON,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILT)
def test_what_cannot_stay_is_told_once_with_the_reason(
    case: str, mixture: Make, recipes: Any, tmp_path: Path, packs: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The layer that has such experts answers as well, and the other one keeps its own."""
    spoil, reason = SPOILT[case]
    made = mixture("qwen3_moe", "packed")
    spoil(made, recipes["other"])
    found = answers(made.write(tmp_path / "quantized"))
    told, count = (record.message for record in caplog.records)
    assert told == f"Experts are dequantized while they are loaded, since {reason}."
    plain = {"one is plain": 14, "the first is plain": 12}.get(case, 15)
    assert count.startswith(f"{plain} quantized weights of ")
    assert count.endswith(f"since the model or the kernels do not take {plain} as they are.")
    assert len(packs) == 1
    require_same(found, answers(made.write_meant(tmp_path / "meant")))


def test_experts_that_are_all_plain_are_no_news(
    mixture: Make, tmp_path: Path, packs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    made = mixture("mixtral", "int8", plain="experts")
    found = answers(made.write(tmp_path / "quantized"))
    assert not packs and "dequantized" not in caplog.text
    require_same(found, answers(made.write_meant(tmp_path / "meant")))


def test_a_stack_that_does_not_take_them_dequantizes_them(
    mixture: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    offered = TorchKernels.operations

    def without(self: TorchKernels) -> dict[str, Any]:
        return {k: v for k, v in offered(self).items() if k != "quant_experts"}

    made = mixture("mixtral", "awq 32")
    monkeypatch.setattr(TorchKernels, "operations", without)
    found = answers(made.write(tmp_path / "quantized"), **{"kernel.stack": ["torch"]})
    (count,) = (record.message for record in caplog.records)
    assert count.startswith("24 quantized weights of 26 were dequantized")
    require_same(found, answers(made.write_meant(tmp_path / "meant")))
