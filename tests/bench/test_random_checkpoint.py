"""Folders of random weights hold what models take, and nothing else."""

import json
from pathlib import Path
from runpy import run_path

import pytest
from safetensors.torch import load_file

from jackfield import LLM, SamplingParams

SCRIPT = Path(__file__).parents[2] / "scripts" / "random_checkpoint.py"


@pytest.mark.parametrize("shape", ["qwen3-tiny", "qwen3-moe-tiny", "deepseek-v2-tiny"])
def test_a_model_loads_it(shape: str, tmp_path: Path) -> None:
    run_path(str(SCRIPT))["main"](shape, str(tmp_path), 0.05)
    folder = tmp_path / shape
    params = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, detokenize=False)
    with LLM(
        str(folder), skip_tokenizer_init=True, max_model_len=64, **{"cache.num_blocks": 16}
    ) as llm:
        (answer,) = llm.generate([[1, 2, 3]], params, use_tqdm=False)
    assert len(answer.outputs[0].token_ids) == 3
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    stored = load_file(folder / "model-00000.safetensors")
    assert index["weight_map"].keys() == stored.keys()
    assert 0.049 < float(stored["model.embed_tokens.weight"].float().std()) < 0.051
    assert float(stored["model.norm.weight"].float().mean()) == 1


def test_quantized_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="qwen3-tiny-awq has quantized weights"):
        run_path(str(SCRIPT))["main"]("qwen3-tiny-awq", str(tmp_path))
    assert list(tmp_path.iterdir()) == []
