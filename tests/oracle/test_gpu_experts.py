"""On a GPU: models with experts in CUDA graphs, by every way of the kernels."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams

pytestmark = pytest.mark.gpu
GAP = 0.1
"""By how much tokens may be less likely than the likeliest on average, as log-probabilities; tokens
of a wrong model are less likely by several units."""
SPARSE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MODELS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**SPARSE, "shared_expert_intermediate_size": 32},
    "qwen3_moe": {**SPARSE, "norm_topk_prob": True},
}
TOKENS = 16
Made = tuple[Path, Any, list[list[int]]]


def prompts() -> list[list[int]]:
    """Twelve, and one that no graph would hold."""
    random = Random(3)
    lengths = [1, 15, 16, 17, 40, 100, 33, 2, 9, 60, 5, 3, 700]
    return [[random.randrange(498) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module", params=MODELS)
def made(
    request: pytest.FixtureRequest,
    make_model: Callable[..., tuple[Path, Any]],
    greedy: Callable[..., list[int]],
) -> Made:
    sizes = {"max_position_embeddings": 1024, "initializer_range": 0.1}
    folder, model = make_model(request.param, **MODELS[request.param], **sizes)
    return folder, model, [greedy(model, prompt, TOKENS) for prompt in prompts()]


def answers(folder: Path, dtype: str, **settings: Any) -> Sequence[Any]:
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    with LLM(
        str(folder), skip_tokenizer_init=True, max_num_seqs=16, max_model_len=1024, dtype=dtype,
        **{"cache.num_blocks": 400, **settings},
    ) as llm:  # fmt: skip
        found = llm.generate(prompts(), params, use_tqdm=False)
    return [one.outputs[0].token_ids for one in found]


@pytest.mark.parametrize("stack", [["triton", "torch"], ["torch"]])
@pytest.mark.parametrize("overlap", [0, 1])
def test_float32_equals_transformers(made: Made, stack: list[str], overlap: int) -> None:
    folder, _, wanted = made
    settings = {"kernel.stack": stack, "engine.overlap": overlap, "device": "cuda"}
    assert answers(folder, "float32", **settings) == wanted


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_choose_tokens_that_are_about_the_best(made: Made, dtype: str) -> None:
    """Judged by the float32 model, position by position along the answer."""
    folder, model, _ = made
    lost = []
    for prompt, tokens in zip(prompts(), answers(folder, dtype, device="cuda"), strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        scores = logits.float().log_softmax(-1)
        lost.append(scores.amax(-1) - scores.gather(1, torch.tensor(tokens)[:, None]).squeeze(1))
    assert float(torch.cat(lost).mean()) < GAP


@pytest.mark.parametrize("stack", [["triton", "torch"], ["torch"]])
@pytest.mark.parametrize("graphs", [True, False])
def test_tokens_of_experts_are_counted_without_padding(
    made: Made, stack: list[str], graphs: bool
) -> None:
    folder, _, _ = made
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False)
    settings = {
        "kernel.stack": stack, "engine.overlap": 0, "engine.graphs": graphs, "cache.num_blocks": 400
    }  # fmt: skip
    with LLM(
        str(folder), skip_tokenizer_init=True, max_num_seqs=16, max_model_len=1024, dtype="float32",
        device="cuda", **settings,
    ) as llm:  # fmt: skip
        assert not any(map(any, llm.expert_counts().values())), "what runs at start is forgotten"
        llm.generate(prompts(), params, use_tqdm=False)
        positions = sum(len(prompt) + TOKENS - 1 for prompt in prompts())
        found = llm.expert_counts()
    assert found and {sum(counts) for counts in found.values()} == {2 * positions}
