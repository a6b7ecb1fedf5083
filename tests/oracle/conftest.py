"""Models that transformers makes, and the answers that it gives."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

VOCAB = 500
TINY = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "eos_token_id": 499,
    "bos_token_id": 498,
    "pad_token_id": None,
}
GAP = 0.05
"""Log-probabilities of the two likeliest tokens may lie so close where bfloat16 answers part."""
Oracle = Callable[[Sequence[int], int], list[int]]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Any]]:
    """A saved random model of an architecture, and the same model in transformers."""

    def make(model_type: str, **changes: Any) -> tuple[Path, Any]:
        torch.manual_seed(1)
        config = CONFIG_MAPPING[model_type](**{**TINY, **changes})
        model = AutoModelForCausalLM.from_config(config).eval()
        folder = tmp_path_factory.mktemp(model_type)
        model.save_pretrained(folder)
        return folder, model

    return make


@pytest.fixture(scope="session")
def greedy() -> Callable[[Any, Sequence[int], int], list[int]]:
    """The greedy answer of a transformers model, without any end-of-sequence."""

    def answer(model: Any, prompt: Sequence[int], count: int) -> list[int]:
        with torch.inference_mode():
            found = model.generate(
                torch.tensor([list(prompt)]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                max_new_tokens=count,
                do_sample=False,
                repetition_penalty=1.0,
                eos_token_id=None,
                pad_token_id=0,
            )
        return found[0, len(prompt) :].tolist()

    return answer


@pytest.fixture(scope="session")
def check_partings() -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """Answers with two log-probabilities each go on like others, until two tokens are about equally
    likely."""

    def check(found: Sequence[Any], wanted: Sequence[Any]) -> None:
        for one, other in zip(found, wanted, strict=True):
            pairs = zip(one.token_ids, other.token_ids, strict=True)
            first = next((i for i, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
            if first is not None:
                second, best = sorted(lp.logprob for lp in other.logprobs[first].values())[-2:]
                assert best - second <= GAP, (first, best - second)

    return check
