"""A rope whose base depends on the length of the prompt, through chunks and preemptions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from jackfield import LLM, SamplingParams
from jackfield.core.testing.tiny_model import write_tiny_model

LENGTHS = [8, 60, 64, 65, 100, 200]
PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = [[5 + (7 * place + length) % 250 for place in range(length)] for length in LENGTHS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made for 64 positions, stretched to 256."""
    made = write_tiny_model(tmp_path_factory.mktemp("dynamic"))
    config = json.loads((made / "config.json").read_text())
    config |= {
        "max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
    }  # fmt: skip
    (made / "config.json").write_text(json.dumps(config))
    return made


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    """What the reference answers; a new one for each prompt, since it remembers lengths."""
    return [_answer(folder, prompt) for prompt in PROMPTS]


def _answer(folder: Path, prompt: list[int]) -> list[int]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False,
            eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    answer: list[int] = found[0, len(prompt) :].tolist()
    return answer


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 16},
        {"max_num_batched_tokens": 24, "engine.overlap": 2},
        {"num_gpu_blocks_override": 34, "max_model_len": 256},
    ],
)
def test_answers_equal_the_reference(
    folder: Path, expected: list[list[int]], load: Callable[..., LLM], settings: dict[str, Any]
) -> None:
    llm = load(folder, **settings)
    found = llm.generate(PROMPTS, PARAMS, use_tqdm=False)
    assert [output.outputs[0].token_ids for output in found] == expected
