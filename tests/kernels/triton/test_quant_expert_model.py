"""A model of made-up quantized experts: Triton's products, interpreted, against plain torch."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import SamplingParams
from jackfield.core.bench.shapes import QUANTIZED
from jackfield.core.testing.tiny_llm import tiny_llm
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.plugins.kernels.triton.plugin import TritonKernels
from jackfield.plugins.kernels.triton.quant_experts import TritonQuantExperts

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="others compare on a GPU"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
SPARSE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 32, "num_hidden_layers": 1,
}  # fmt: skip
GREEDY = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, detokenize=False)
Found = tuple[list[int], Mapping[int, Sequence[int]], str]


def answers(folder: Path, *stack: str, **settings: Any) -> Found:
    settings |= {"kernel.stack": list(stack), "device": "cpu", "num_gpu_blocks_override": 16}
    with (
        torch.device("cpu"),
        tiny_llm(folder, load_format="dummy", dtype="float16", max_num_seqs=4, **settings) as llm,
    ):
        found = llm.generate([{"prompt_token_ids": [5, 6, 7]}], GREEDY, use_tqdm=False)
        counts, owner = llm.expert_counts(), llm.assembly.summary.operations["quant_experts"]
    assert not found[0].outputs[0].error
    return list(found[0].outputs[0].token_ids), counts, owner


def only_experts(self: TritonKernels) -> dict[str, Any]:
    """Others have tests of their own, and take long."""
    return {"quant_experts": TritonQuantExperts(self.config)}


def test_tokens_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tiny_model(tmp_path) / "config.json"
    config = json.loads(path.read_text()) | SPARSE | {"quantization_config": QUANTIZED["int8"]}
    path.write_text(json.dumps(config))
    wanted = answers(tmp_path, "torch")
    monkeypatch.setattr(TritonKernels, "operations", only_experts)
    found = answers(tmp_path, "triton", "torch", **{"kernel.triton.interpret": True})
    assert found == (*wanted[:2], "triton")
    assert sum(found[1][0]) == 2 * (3 + 1)
