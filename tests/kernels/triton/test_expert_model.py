"""Models with experts on Triton's kernels, in the interpreter: the answers and counts of torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import SamplingParams
from jackfield.core.testing.tiny_llm import tiny_llm
from jackfield.core.testing.tiny_model import write_tiny_model

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="others compare on a GPU"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
PROMPTS: Any = [{"prompt_token_ids": ids} for ids in ([5, 6, 7], [9, 8, 7, 6, 5] * 2)]
GREEDY = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
SPARSE = {
    "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 6,
    "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 1,
}  # fmt: skip
Found = tuple[list[list[int]], Mapping[int, Sequence[int]]]


def answers(folder: Path, *stack: str, **settings: Any) -> Found:
    settings |= {"kernel.stack": list(stack), "device": "cpu", "num_gpu_blocks_override": 16}
    with torch.device("cpu"), tiny_llm(
        folder, load_format="dummy", max_num_seqs=4, **settings
    ) as llm:
        found = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
        counts = llm.expert_counts()
    assert not any(output.error for request in found for output in request.outputs)
    return [list(request.outputs[0].token_ids) for request in found], counts


def test_tokens_and_counts(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | SPARSE))
    own = answers(tmp_path, "triton", "torch", **{"kernel.triton.interpret": True})
    assert own == answers(tmp_path, "torch")
    assert sum(own[1][0]) == 2 * (3 + 2 + 10 + 2)
