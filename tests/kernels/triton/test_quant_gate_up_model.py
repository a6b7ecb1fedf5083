"""A quantized model of made-up weights: gate and up in one launch and in two, interpreted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield import SamplingParams
from jackfield.core.bench.shapes import QUANTIZED
from jackfield.core.testing.tiny_llm import tiny_llm
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.plugins.kernels.triton import quant_matmul_silu_mul as module
from jackfield.plugins.kernels.triton.plugin import TritonKernels
from jackfield.plugins.kernels.triton.quant_matmul import QuantConfigs, TritonQuantMatmul
from jackfield.plugins.kernels.triton.quant_matmul_silu_mul import TritonQuantMatmulSiluMul
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="others compare on a GPU"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
PARTS = {"quant_matmul": TritonQuantMatmul, "silu_mul": TritonSiluMul}
JOINT = {"quant_matmul_silu_mul": TritonQuantMatmulSiluMul}
ENTRY = {"TILES": 2, "PARTS": 1, "BLOCKS": 1, "ROWS": 8, "SPLITS": 1, "AHEAD": 0}
ENTRY |= {"num_warps": 1, "num_stages": 1}
PARAMS = SamplingParams(
    temperature=0, max_tokens=2, ignore_eos=True, detokenize=False, logprobs=20, prompt_logprobs=20
)


def answers(folder: Path) -> tuple[Sequence[int], list[dict[int, float]]]:
    """Tokens, and what the logits make of the likeliest at each position."""
    settings: dict[str, Any] = {"kernel.stack": ["triton", "torch"], "device": "cpu"}
    settings |= {"kernel.triton.interpret": True, "num_gpu_blocks_override": 16}
    with (
        torch.device("cpu"),
        tiny_llm(folder, load_format="dummy", dtype="float16", max_num_seqs=4, **settings) as llm,
    ):
        (found,) = llm.generate([{"prompt_token_ids": [5, 6, 7]}], PARAMS, use_tqdm=False)
    output = found.outputs[0]
    assert not output.error
    rows = [*found.prompt_logprobs[1:], *output.logprobs]
    return output.token_ids, [{token: one.logprob for token, one in row.items()} for row in rows]


@pytest.mark.parametrize("quantization", ["awq32", "fp8block"])
def test_logits_have_the_same_bits(
    tmp_path: Path, quantization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path) / "config.json"
    config = json.loads(path.read_text()) | {"quantization_config": QUANTIZED[quantization]}
    path.write_text(json.dumps(config))
    rows = []
    multiply = module.multiply_tiles

    def noted(x: Tensor, *others: Any) -> None:
        rows.append(x.shape[0])
        multiply(x, *others)

    monkeypatch.setattr(module, "multiply_tiles", noted)
    monkeypatch.setattr(QuantConfigs, "find", lambda *asked: ENTRY)

    def answered_by(made: dict[str, Any]) -> Any:
        monkeypatch.setattr(
            TritonKernels, "operations", lambda self: {n: m(self.config) for n, m in made.items()}
        )
        return answers(tmp_path)

    in_two = answered_by(PARTS)
    assert rows == []
    assert answered_by(PARTS | JOINT) == in_two
    assert {1, 3} <= set(rows)
