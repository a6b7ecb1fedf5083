"""A model on all of Triton's kernels at once, in the interpreter: the answers of plain torch."""

from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.api import RANK_OPERATIONS
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.plugins.kernels.triton import NAMES

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="others compare on a GPU"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
PROMPTS = [[5, 6, 7], [9, 8, 7, 6, 5] * 4]


def answers(folder: Path, *stack: str, **settings: Any) -> tuple[list[list[int]], dict[str, str]]:
    with torch.device("cpu"):
        llm = LLM(
            str(folder), dtype="float32", max_num_seqs=4, device="cpu",
            **{"kernel.stack": list(stack), "cache.num_blocks": 16, **settings},
        )  # fmt: skip
        params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        found = llm.generate(prompts, params, use_tqdm=False)
        operations = llm.assembly.summary.operations
        llm.close()
    assert not any(output.error for request in found for output in request.outputs)
    return [request.outputs[0].token_ids for request in found], operations


@pytest.mark.parametrize("cache", [["paged", "prefix"], ["paged", "prefix", "fp8"]])
def test_tokens_and_who_serves_them(tmp_path: Path, cache: list[str]) -> None:
    folder = write_tiny_model(tmp_path / "model")
    settings = {"cache.stack": cache}
    wanted, _ = answers(folder, "torch", **settings)
    found, owners = answers(
        folder, "triton", "torch", **settings, **{"kernel.triton.interpret": True}
    )
    assert found == wanted
    serving = {name for name, owner in owners.items() if owner == "triton"}
    assert serving == set(NAMES) - RANK_OPERATIONS
