"""A quantized model of made-up weights: Triton's products, interpreted, against plain torch."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from jackfield import LLM, SamplingParams
from jackfield.core.bench.shapes import QUANTIZED
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.plugins.kernels.triton.plugin import TritonKernels
from jackfield.plugins.kernels.triton.quant_matmul import TritonQuantMatmul

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="others compare on a GPU"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]


def answers(folder: Path, *stack: str, **settings: Any) -> tuple[list[int], str]:
    with torch.device("cpu"):
        llm = LLM(
            str(folder), dtype="float16", max_num_seqs=4, device="cpu", load_format="dummy",
            **{"kernel.stack": list(stack), "cache.num_blocks": 16, **settings},
        )  # fmt: skip
        params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
        found = llm.generate([{"prompt_token_ids": [5, 6, 7]}], params, use_tqdm=False)
        owner = llm.assembly.summary.operations["quant_matmul"]
        llm.close()
    output = found[0].outputs[0]
    assert not output.error
    return output.token_ids, owner


def only_products(self: TritonKernels) -> dict[str, Any]:
    """Others have tests of their own, and take long."""
    return {"quant_matmul": TritonQuantMatmul(self.config)}


@pytest.mark.parametrize("quantization", ["awq", "fp8block"])
def test_a_model_says_the_same(
    tmp_path: Path, quantization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = QUANTIZED[quantization]
    (folder / "config.json").write_text(json.dumps(config))
    wanted, _ = answers(folder, "torch")
    rows = []
    multiply = TritonQuantMatmul.__call__

    def noted(self: TritonQuantMatmul, x_TI: torch.Tensor, packed: Any) -> torch.Tensor:
        rows.append(x_TI.shape[0])
        return multiply(self, x_TI, packed)

    monkeypatch.setattr(TritonQuantMatmul, "__call__", noted)
    monkeypatch.setattr(TritonKernels, "operations", only_products)
    found, owner = answers(folder, "triton", "torch", **{"kernel.triton.interpret": True})
    assert found == wanted
    assert owner == "triton"
    assert {1, 3} <= set(rows)
