"""On two GPUs: ranks give the answers of one."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch

from jackfield import LLM, SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
MakeModel = Callable[..., tuple[Path, Any]]
Answers = list[list[int]]
ROOMY, TIGHT = 400, 14
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, detokenize=False)
EXPERTS: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32, "v_head_dim": 16, "moe_intermediate_size": 32, "n_routed_experts": 8,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_group": 4,
    "topk_group": 2,
}  # fmt: skip
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("qwen3", {}),
    "qwen2": ("qwen2", {}),
    "llama": ("llama", {}),
    "one kv head": ("llama", {"num_key_value_heads": 1}),
    "mixtral": ("mixtral", {"num_local_experts": 8}),
    "qwen2_moe": ("qwen2_moe", {**EXPERTS, "shared_expert_intermediate_size": 64}),
    "qwen3_moe": ("qwen3_moe", EXPERTS),
    "deepseek_v2": ("deepseek_v2", LATENT),
    "deepseek_v3": ("deepseek_v3", {**LATENT, "q_lora_rank": 24}),
}
ALL_EXPERTS: dict[str, dict[str, Any]] = {
    "qwen3": {}, "qwen3_moe": {"num_experts_per_tok": 8},
    "deepseek_v2": {"num_experts_per_tok": 8, "topk_group": 4},
}  # fmt: skip
"""Nothing is chosen: which expert is next best may hang on how a sum was rounded."""
WITH_EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")


def prompts(count: int = 12) -> list[dict[str, list[int]]]:
    random = Random(3)
    lengths = [1, 15, 16, 17, 40, 100, *(random.randint(1, 60) for _ in range(count - 6))]
    return [{"prompt_token_ids": [random.randrange(498) for _ in range(n)]} for n in lengths]


def outputs(folder: Path, params: SamplingParams = GREEDY, rounds: int = 1, **wanted: Any) -> Any:
    settings = {"dtype": "float32", "cache.num_blocks": ROOMY, **wanted}
    llm = LLM(
        str(folder), skip_tokenizer_init=True, max_num_seqs=12, max_model_len=160, device="cuda",
        **settings,
    )  # fmt: skip
    try:
        for _ in range(rounds):
            found = llm.generate(prompts(), params, use_tqdm=False)
    finally:
        llm.close()
    return [output for request in found for output in request.outputs]


def tokens(folder: Path, **wanted: Any) -> Answers:
    return [list(output.token_ids) for output in outputs(folder, **wanted)]


class Case(NamedTuple):
    """A model, and what one GPU answers."""

    folder: Path
    wanted: Answers


@pytest.fixture(scope="module", params=SHAPES)
def case(request: pytest.FixtureRequest, make_model: MakeModel) -> Case:
    model_type, changes = SHAPES[request.param]
    folder, _ = make_model(model_type, **changes)
    return Case(folder, tokens(folder))


@pytest.mark.parametrize(("overlap", "num_blocks"), [(0, TIGHT), (1, ROOMY)])
def test_greedy_tokens_in_float32(case: Case, overlap: int, num_blocks: int) -> None:
    settings = {"engine.overlap": overlap, "cache.num_blocks": num_blocks}
    assert tokens(case.folder, tensor_parallel_size=2, **settings) == case.wanted


@pytest.mark.parametrize("case", WITH_EXPERTS, indirect=True)
def test_whole_experts(case: Case) -> None:
    settings = {"parallel.experts": True}
    assert tokens(case.folder, tensor_parallel_size=2, **settings) == case.wanted


STACKS: Sequence[dict[str, Any]] = (
    {"cache.stack": ["paged"]},
    {"swap_space": 0.0625, "cache.num_blocks": TIGHT},
    {"cache.stack": ["paged", "radix", "fp8"]},
    {"swap_space": 0.0625, "kv_cache_dtype": "fp8"},
)


@pytest.mark.parametrize("settings", STACKS, ids=str)
@pytest.mark.parametrize("model_type", ["qwen3", "deepseek_v2"])
def test_stacks(make_model: MakeModel, model_type: str, settings: dict[str, Any]) -> None:
    """The second round finds what the first has left in the cache."""
    _, changes = SHAPES[model_type]
    folder, _ = make_model(model_type, **changes)
    alone = tokens(folder, rounds=2, **settings)
    assert tokens(folder, rounds=2, tensor_parallel_size=2, **settings) == alone


@pytest.mark.parametrize("name", ALL_EXPERTS)
def test_bfloat16_answers_part_only_where_two_tokens_are_about_equal(
    make_model: MakeModel, name: str, check_partings: Callable[..., None]
) -> None:
    model_type, changes = SHAPES[name]
    changes = {**changes, **ALL_EXPERTS[name], "initializer_range": 0.1}
    folder, _ = make_model(model_type, **changes)
    params = SamplingParams(
        temperature=0, max_tokens=40, ignore_eos=True, detokenize=False, logprobs=2
    )
    alone = outputs(folder, params, dtype="bfloat16")
    found = outputs(folder, params, dtype="bfloat16", tensor_parallel_size=2)
    check_partings(found, alone)


def test_nothing_is_left_on_either_card(make_model: MakeModel) -> None:
    folder, _ = make_model("qwen3")
    tokens(folder, tensor_parallel_size=2)
    before = [torch.cuda.mem_get_info(device)[0] for device in (0, 1)]
    for _ in range(2):
        tokens(folder, tensor_parallel_size=2)
    after = [torch.cuda.mem_get_info(device)[0] for device in (0, 1)]
    assert after[0] >= before[0] - (8 << 20) and after[1] >= before[1] - (8 << 20)
