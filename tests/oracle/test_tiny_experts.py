"""Models with experts through the whole engine, in float32: against transformers on the same random
weights, and against dense models whose feed-forward part every expert repeats."""

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from jackfield import SamplingParams
from jackfield.core.testing.tiny_llm import tiny_llm

TOKENS = 10
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SPARSE = {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SHARED = {**SPARSE, "shared_expert_intermediate_size": 40}
MIXTRAL = {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("mixtral", MIXTRAL),
    "qwen2": ("qwen2_moe", SHARED),
    "qwen2 normed, step 2": (
        "qwen2_moe", {**SHARED, "norm_topk_prob": True, "decoder_sparse_step": 2},
    ),
    "qwen3": ("qwen3_moe", {**SPARSE, "head_dim": 16}),
    "qwen3 normed, plain layer": (
        "qwen3_moe", {**SPARSE, "norm_topk_prob": True, "mlp_only_layers": [0]},
    ),
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "chunks of 1": {"max_num_batched_tokens": 1, "max_num_seqs": 1},
    "chunks of 7": {"max_num_batched_tokens": 7, "max_num_seqs": 4},
    "chunks of 64": {
        "max_num_batched_tokens": 64, "max_num_seqs": 8, "kernel.stack": ["torch"],
    },
    "preempted": {"num_gpu_blocks_override": 9, "max_model_len": 100, "engine.overlap": 1},
}  # fmt: skip
PROMPT = [5, 9, 200, 31, 77, 12, 6]
load = partial(tiny_llm, num_gpu_blocks_override=128)


def prompts() -> list[list[int]]:
    """Seven, of mixed length."""
    numbers = random.Random(3)
    return [[numbers.randrange(498) for _ in range(length)] for length in (1, 15, 16, 40, 2, 9, 65)]


@pytest.fixture(scope="module", params=MODELS, ids=str)
def case(
    request: pytest.FixtureRequest,
    make_model: Callable[..., tuple[Path, Any]],
    greedy: Callable[[Any, Sequence[int], int], list[int]],
) -> tuple[Path, Any, list[list[int]]]:
    model_type, changes = MODELS[request.param]
    folder, model = make_model(model_type, **changes)
    return folder, model, [greedy(model, prompt, TOKENS) for prompt in prompts()]


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_equal(case: tuple[Path, Any, list[list[int]]], name: str) -> None:
    folder, _, expected = case
    with load(folder, **SETTINGS[name]) as llm:
        answers = llm.generate(prompts(), GREEDY, use_tqdm=False)
        preemptions = llm.assembly.engine.metrics.preemptions
    assert [answer.outputs[0].token_ids for answer in answers] == expected
    assert (preemptions > 0) == (name == "preempted")


def test_logprobs_equal(case: tuple[Path, Any, list[list[int]]]) -> None:
    """Of prompt and answer, within 1e-4."""
    folder, model, expected = case
    prompt, tokens = prompts()[3], expected[3]
    with load(folder, max_num_batched_tokens=7, max_num_seqs=4) as llm:
        params = GREEDY.with_(logprobs=3, prompt_logprobs=3)
        answer = llm.generate(prompt, params, use_tqdm=False)[0]
    with torch.inference_mode():
        wanted = model(torch.tensor([prompt + tokens])).logits[0].float().log_softmax(-1)
    found = [*(answer.prompt_logprobs or [])[1:], *(answer.outputs[0].logprobs or [])]
    assert len(found) == len(prompt) + TOKENS - 1
    for position, entries in enumerate(found):
        assert len(entries) >= 3
        for token, entry in entries.items():
            assert entry.logprob == pytest.approx(wanted[position, token].item(), abs=1e-4)


def experts_of(
    dense: Path, folder: Path, changes: dict[str, Any], name: Callable[..., str]
) -> None:
    """A copy of a dense model with four experts a layer, all equal to its feed-forward part."""
    tensors = load_file(dense / "model.safetensors")
    config = json.loads((dense / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    made = dict(tensors)
    for key in [key for key in tensors if ".mlp." in key]:
        layer, part = key.split(".mlp.")
        del made[key]
        for expert in range(4):
            made[name(layer, expert, part.removesuffix("_proj.weight"))] = tensors[key].clone()
    save_file(made | added(config, changes), folder / "model.safetensors")


def added(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Routers at random, and a shared expert that makes nothing."""
    made, hidden = {}, config["hidden_size"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        if "num_local_experts" in changes:
            made[f"{prefix}.block_sparse_moe.gate.weight"] = torch.randn(4, hidden)
            continue
        made[f"{prefix}.mlp.gate.weight"] = torch.randn(4, hidden)
        made[f"{prefix}.mlp.shared_expert_gate.weight"] = torch.randn(1, hidden)
        for part, shape in (("gate", (8, hidden)), ("up", (8, hidden)), ("down", (hidden, 8))):
            made[f"{prefix}.mlp.shared_expert.{part}_proj.weight"] = torch.zeros(shape)
    return made


def mixtral_name(layer: str, expert: int, part: str) -> str:
    product = {"gate": "w1", "up": "w3", "down": "w2"}[part]
    return f"{layer}.block_sparse_moe.experts.{expert}.{product}.weight"


def qwen_name(layer: str, expert: int, part: str) -> str:
    return f"{layer}.mlp.experts.{expert}.{part}_proj.weight"


COPIES: dict[str, tuple[str, dict[str, Any], Callable[..., str]]] = {
    "mixtral": (
        "llama",
        {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
         "num_local_experts": 4, "num_experts_per_tok": 2},
        mixtral_name,
    ),
    "qwen2 moe": (
        "qwen2",
        {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 4,
         "num_experts_per_tok": 2, "norm_topk_prob": True, "moe_intermediate_size": 96,
         "shared_expert_intermediate_size": 8},
        qwen_name,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIES)
def test_experts_that_repeat_a_dense_model_answer_like_it(
    name: str, make_model: Callable[..., tuple[Path, Any]], tmp_path: Path
) -> None:
    model_type, changes, names = COPIES[name]
    dense, _ = make_model(model_type)
    torch.manual_seed(2)
    experts_of(dense, tmp_path, changes, names)
    answers = [answer_of(folder) for folder in (dense, tmp_path)]
    assert answers[0] == answers[1]


def answer_of(folder: Path) -> list[list[int]]:
    with load(folder) as llm:
        params = GREEDY.with_(max_tokens=30)
        found = llm.generate([PROMPT, *prompts()], params, use_tqdm=False)
        return [one.outputs[0].token_ids for one in found]
