"""The default model against transformers on the same folder, in float32."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings as profile
from transformers import AutoModelForCausalLM

from jackfield import LLM, SamplingParams
from jackfield.core.checkpoint.default_model import default_model
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.text.tokenizer import Tokenizer

pytestmark = pytest.mark.default_model
TOKENS, ALONE = 20, 6
"""Of an answer beside others; and of one that is the only one, which reads all weights for each of
its tokens. With the deep profile both are as long."""
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
TEXTS = [
    "The quick brown fox",
    "Once upon a time in a land far away, there lived",
    "def fibonacci(n):",
    "In 1969,",
    "The capital of France is",
    "Water boils at",
    "List three colours:",
]
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "overlap 1": {"engine.overlap": 1},
    "overlap 2": {"engine.overlap": 2},
    "chunks of 16": {"max_num_batched_tokens": 16, "max_num_seqs": 8},
    "chunks of 512": {"max_num_batched_tokens": 512},
    "preempted": {"num_gpu_blocks_override": 16, "max_model_len": 200},
    "torch kernels": {"kernel.stack": ["torch"]},
}


@pytest.fixture(scope="module")
def folder() -> Path:
    return default_model(SilentProgress())


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[list[int]]:
    """Twenty, of 1 to 90 tokens: a few texts, and ids at random."""
    tokenizer, numbers = Tokenizer.load(folder), random.Random(0)
    lengths = [numbers.randint(1, 90) for _ in range(13)]
    return [tokenizer.encode(text) for text in TEXTS] + [
        [numbers.randrange(3, 49_000) for _ in range(length)] for length in lengths
    ]


@pytest.fixture(scope="module")
def expected(
    folder: Path,
    prompts: list[list[int]],
    greedy: Callable[[Any, Sequence[int], int], list[int]],
) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return [greedy(model, prompt, TOKENS) for prompt in prompts]


def load(**settings: Any) -> LLM:
    defaults: dict[str, Any] = {"dtype": "float32", "num_gpu_blocks_override": 512}
    return LLM(progress=SilentProgress(), **{**defaults, **settings})


@pytest.mark.parametrize("name", SETTINGS)
def test_all_at_once(prompts: list[list[int]], expected: list[list[int]], name: str) -> None:
    with load(**SETTINGS[name]) as llm:
        answers = llm.generate(prompts, GREEDY, use_tqdm=False)
        preemptions = llm.assembly.engine.metrics.preemptions
    assert [answer.outputs[0].token_ids for answer in answers] == expected
    assert (preemptions > 0) == (name == "preempted")


def test_one_after_the_other(prompts: list[list[int]], expected: list[list[int]]) -> None:
    params = GREEDY.with_(max_tokens=tokens_alone())
    with load() as llm:
        for prompt, tokens in zip(prompts, expected, strict=True):
            (answer,) = llm.generate(prompt, params, use_tqdm=False)
            assert answer.outputs[0].token_ids == tokens[: params.max_tokens]


def tokens_alone() -> int:
    assert profile.default is not None
    return TOKENS if profile.default.max_examples > 100 else ALONE


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_knows_a_capital(dtype: str) -> None:
    question = "What is the capital of France? Answer in one sentence."
    with load(dtype=dtype) as llm:
        params = SamplingParams(temperature=0, max_tokens=40)
        answer = llm.chat([{"role": "user", "content": question}], params, use_tqdm=False)[0]
    assert answer.outputs[0].text == "The capital of France is Paris."
    assert answer.outputs[0].finish_reason == "stop"
