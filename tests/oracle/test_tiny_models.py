"""The whole engine against transformers on the same random weights, in float32."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import SamplingParams
from jackfield.core.testing.tiny_llm import tiny_llm

TOKENS = 12
NO_END = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
MODELS = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2 window": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"head_dim": 32}),
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "overlap 1": {"engine.overlap": 1},
    "overlap 2": {"engine.overlap": 2},
    "chunks of 16": {"max_num_batched_tokens": 16, "max_num_seqs": 8},
    "chunks of 512": {"max_num_batched_tokens": 512},
    "preempted": {"num_gpu_blocks_override": 12, "max_model_len": 150, "engine.overlap": 1},
    "torch kernels": {"kernel.stack": ["torch"]},
}


def prompts() -> list[list[int]]:
    """Twenty, of mixed length."""
    numbers = random.Random(3)
    return [
        [numbers.randrange(498) for _ in range(numbers.choice([1, 2, 15, 16, 17, 40, 90]))]
        for _ in range(20)
    ]


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
    with tiny_llm(folder, **SETTINGS[name]) as llm:
        answers = llm.generate(prompts(), NO_END, use_tqdm=False)
        preemptions = llm.assembly.engine.metrics.preemptions
    assert [answer.outputs[0].token_ids for answer in answers] == expected
    assert (preemptions > 0) == (name == "preempted")


def test_alone_equals_together(case: tuple[Path, Any, list[list[int]]]) -> None:
    folder, _, expected = case
    with tiny_llm(folder) as llm:
        for prompt, tokens in zip(prompts(), expected, strict=True):
            assert llm.generate(prompt, NO_END, use_tqdm=False)[0].outputs[0].token_ids == tokens


def test_logprobs_equal(case: tuple[Path, Any, list[list[int]]]) -> None:
    """Of prompt and answer, over the whole vocabulary that is asked for, within 1e-4."""
    folder, model, expected = case
    prompt, tokens = prompts()[5], expected[5]
    params = NO_END.with_(logprobs=5, prompt_logprobs=3)
    with tiny_llm(folder, max_num_batched_tokens=16, max_num_seqs=4) as llm:
        answer = llm.generate(prompt, params, use_tqdm=False)[0]
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + tokens])).logits[0]
    wanted = torch.log_softmax(logits.float(), dim=-1)
    scores = answer.outputs[0].logprobs
    assert scores is not None and answer.prompt_logprobs is not None
    assert answer.prompt_logprobs[0] is None
    for position in range(1, len(prompt)):
        check(answer.prompt_logprobs[position], wanted[position - 1], prompt[position], 3)
    for offset, token in enumerate(tokens):
        check(scores[offset], wanted[len(prompt) - 1 + offset], token, 5)


def check(found: Any, wanted: torch.Tensor, token: int, top: int) -> None:
    ids = wanted.topk(top).indices.tolist()
    assert set(found) == {token, *ids}
    for index, entry in found.items():
        assert entry.logprob == pytest.approx(wanted[index].item(), abs=1e-4)
        assert entry.rank == int((wanted > wanted[index]).sum()) + 1


def test_answers_of_one_prompt_share_its_blocks(case: tuple[Path, Any, list[list[int]]]) -> None:
    folder, _, expected = case
    prompt = prompts()[-1] + prompts()[5]
    params = NO_END.with_(n=4)
    with tiny_llm(folder) as llm:
        answer = llm.generate(prompt, params, use_tqdm=False)[0]
        alone = llm.generate(prompt, NO_END, use_tqdm=False)[0]
        shared = llm.assembly.engine.metrics.shared_tokens
    assert [out.token_ids for out in answer.outputs] == [alone.outputs[0].token_ids] * 4
    assert shared >= 3 * (len(prompt) - 1)
    assert expected
