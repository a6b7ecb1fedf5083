"""Quantized checkpoints answer like the float32 model whose weights are what theirs mean."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.checkpoint.progress import SilentProgress

CLOSE = 1e-4
PROMPTS = [[1, 2, 3, 5, 8, 13, 21, 34, 55], [200, 100, 50, 25]]
Make = Callable[..., Any]


def answers(folder: Path) -> list[Any]:
    params = SamplingParams(
        max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=20, prompt_logprobs=20
    )
    with LLM(
        folder, skip_tokenizer_init=True, num_gpu_blocks_override=32, max_model_len=64,
        progress=SilentProgress(), **{"engine.threads": 1},
    ) as llm:  # fmt: skip
        prompts = [{"prompt_token_ids": ids} for ids in PROMPTS]
        return list(llm.generate(prompts, params, use_tqdm=False))


def chances(output: Any) -> list[dict[int, float]]:
    rows = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
    return [{token: each.logprob for token, each in row.items()} for row in rows]


def require_same(found: list[Any], right: list[Any]) -> None:
    for one, other in zip(found, right, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        for row, expected in zip(chances(one), chances(other), strict=True):
            common = row.keys() & expected.keys()
            assert len(common) >= 19
            assert max(abs(row[token] - expected[token]) for token in common) < CLOSE


def test_answers_are_those_of_what_is_meant(
    every_recipe: Any, checkpoint: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = checkpoint(every_recipe)
    found = answers(made.write(tmp_path / "quantized"))
    assert "dequantized while" not in caplog.text
    require_same(found, answers(made.write_meant(tmp_path / "meant")))


def test_a_plain_weight_beside_quantized_ones(checkpoint: Make, tmp_path: Path) -> None:
    made = checkpoint("awq 32", plain=("model.layers.0.self_attn.k_proj",))
    made.quantization["modules_to_not_convert"] = ["layers.0.self_attn.k_proj"]
    found = answers(made.write(tmp_path / "quantized"))
    require_same(found, answers(made.write_meant(tmp_path / "meant")))


def test_a_quantized_head_is_dequantized_and_told(
    checkpoint: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = checkpoint("gptq 64")
    weight = made.stored.pop("lm_head.weight")
    tensors, made.meant["lm_head.weight"] = made.recipe.write(made.recipe, weight, "lm_head")
    made.stored |= {f"lm_head.{name}": tensor for name, tensor in tensors.items()}
    found = answers(made.write(tmp_path / "quantized"))
    assert "1 quantized weights of 15 were dequantized" in caplog.text
    require_same(found, answers(made.write_meant(tmp_path / "meant")))
