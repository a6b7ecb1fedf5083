"""Latent attention in the whole engine, against transformers on the same random weights."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.evaluation.sequence import PagedSequence
from jackfield.core.testing.tiny_llm import tiny_llm

TOKENS = 16
STORED = 16 + 8
"""Numbers that are kept of a token in one layer."""
NO_END = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
    "mscale": 0.7, "mscale_all_dim": 1.1, "beta_fast": 32, "beta_slow": 1, "rope_theta": 10000.0,
}  # fmt: skip
TINY: dict[str, Any] = {
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "kv_lora_rank": 16, "q_lora_rank": None, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "moe_intermediate_size": 32, "n_routed_experts": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2,
}  # fmt: skip
GROUPED = {"topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0, "q_lora_rank": 24}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "v2 lite": ("deepseek_v2", {"rope_parameters": YARN, "n_shared_experts": 2}),
    "v2": ("deepseek_v2", {**GROUPED, "first_k_dense_replace": 0}),
    "v3": ("deepseek_v3", {"q_lora_rank": 24, "rope_parameters": YARN}),
}
TIGHT = {"num_gpu_blocks_override": 9, "max_model_len": 150, "engine.overlap": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "chunks of 1": {"max_num_batched_tokens": 1, "max_num_seqs": 1},
    "chunks of 7": {"max_num_batched_tokens": 7, "max_num_seqs": 4},
    "chunks of 64": {"max_num_batched_tokens": 64, "max_num_seqs": 8},
    "preempted": TIGHT,
    "preempted, swapped": {
        **TIGHT, "cache.stack": ["paged", "prefix", "swap"], "cache.swap.memory": "4 MiB",
    },
}  # fmt: skip


class Case(NamedTuple):
    folder: Path
    model: Any
    expected: list[list[int]]


def prompts() -> list[list[int]]:
    """Twelve, of mixed length."""
    numbers = random.Random(3)
    lengths = [1, 2, 15, 16, 17, 40, 90, 33, 64, 7, 50, 90]
    return [[numbers.randrange(498) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module", params=MODELS, ids=str)
def case(
    request: pytest.FixtureRequest,
    make_model: Callable[..., tuple[Path, Any]],
    greedy: Callable[[Any, Sequence[int], int], list[int]],
) -> Case:
    model_type, changes = MODELS[request.param]
    folder, model = make_model(model_type, **{**TINY, **changes})
    return Case(folder, model, [greedy(model, prompt, TOKENS) for prompt in prompts()])


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_equal(case: Case, name: str) -> None:
    with tiny_llm(case.folder, **SETTINGS[name]) as llm:
        answers = llm.generate(prompts(), NO_END, use_tqdm=False)
        preemptions = llm.assembly.engine.metrics.preemptions
        stored = llm.assembly.engine.cache_metrics.stored["host"]
    assert [answer.outputs[0].token_ids for answer in answers] == case.expected
    assert (preemptions > 0) == name.startswith("preempted")
    assert (stored > 0) == name.endswith("swapped")


@pytest.mark.parametrize("pieces", [[90], [7] * 12 + [6], [64, 26], [50, *[1] * 40]])
def test_logits_equal(case: Case, pieces: list[int]) -> None:
    prompt = prompts()[6]
    with tiny_llm(case.folder) as llm:
        found = fed(llm, prompt, pieces)
    torch.testing.assert_close(found, wanted(case, prompt), atol=1e-4, rtol=1e-4)


def fed(llm: LLM, prompt: list[int], pieces: list[int]) -> torch.Tensor:
    sequence, begin, rows = PagedSequence(llm.assembly), 0, []
    for count in pieces:
        rows.append(sequence.feed(prompt[begin : begin + count], prompt))
        begin += count
    return torch.cat(rows)


def wanted(case: Case, prompt: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return case.model(torch.tensor([prompt])).logits[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("stack", [["torch"], ["cpu", "torch"]], ids=str)
def test_logits_are_close_in_bfloat16(case: Case, stack: list[str]) -> None:
    prompt = prompts()[6]
    with tiny_llm(case.folder, dtype="bfloat16", **{"kernel.stack": stack}) as llm:
        found = fed(llm, prompt, [50, *[1] * 40]).float()
    similar = torch.cosine_similarity(found, wanted(case, prompt), dim=-1)
    assert float(similar.median()) > 0.98


def test_answers_from_cached_blocks_are_the_same(case: Case) -> None:
    with tiny_llm(case.folder) as llm:
        first = llm.generate(prompts()[6], NO_END, use_tqdm=False)[0]
        again = llm.generate(prompts()[6], NO_END, use_tqdm=False)[0]
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 80)
    assert first.outputs[0].token_ids == again.outputs[0].token_ids == case.expected[6]


def test_answers_from_swapped_blocks_are_the_same(case: Case) -> None:
    with tiny_llm(case.folder, **SETTINGS["preempted, swapped"]) as llm:
        for prompt in (prompts()[6], prompts()[-1]):  # of which there is room for one
            llm.generate(prompt, NO_END, use_tqdm=False)
        again = llm.generate(prompts()[6], NO_END, use_tqdm=False)[0]
        loaded = llm.assembly.engine.cache_metrics.loaded["host"]
    assert again.outputs[0].token_ids == case.expected[6]
    assert loaded > 0 and again.num_cached_tokens > 0


@pytest.mark.parametrize("name", ["e4m3", "int8"])
def test_encoded_latents_are_close(case: Case, name: str) -> None:
    """One scale for each layer, and nothing is stored twice."""
    stack = {"cache.stack": ["paged", "fp8"], "cache.fp8.format": name}
    prompt = prompts()[6]
    with tiny_llm(case.folder, **stack) as llm:
        found = fed(llm, prompt, [50, *[1] * 40])
        layers = llm.assembly.loaded.executor._runner._loaded.layers
        assert llm.assembly.loaded.bytes_per_token == 2 * STORED
    assert [layer.scales.k_K.shape for layer in layers] == [(1,), (1,)]
    right = wanted(case, prompt)
    assert float(torch.cosine_similarity(found, right, dim=-1).mean()) > 0.95
    assert not torch.allclose(found, right, atol=1e-3)


def test_only_the_latent_vectors_are_stored(case: Case) -> None:
    with tiny_llm(case.folder) as llm:
        layers = llm.assembly.loaded.executor._runner._loaded.layers
        assert llm.assembly.loaded.bytes_per_token == 2 * STORED * 4
    assert [list(layer.tensors) for layer in layers] == [["latent"], ["latent"]]


def test_other_kernels_say_why_they_do_not_serve(case: Case) -> None:
    with tiny_llm(case.folder, **{"kernel.stack": ["cpu", "torch"]}) as llm:
        table = llm.assembly.loaded.table
    assert table.owners["attention"] == "torch"
    assert any("latent attention is not served" in str(reason) for reason in table.passed)
