"""Where keys depend on the length of the prompt, no prompt of another length is given them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from jackfield import SamplingParams
from jackfield.core.testing.tiny_llm import tiny_llm

TRAINED, VOCAB, HIDDEN, MIDDLE = 32, 500, 64, 96
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=5)
QWEN1: dict[str, Any] = {
    "architectures": ["QWenLMHeadModel"], "hidden_size": HIDDEN, "intermediate_size": 2 * MIDDLE,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCAB, "seq_length": TRAINED,
    "max_position_embeddings": 256, "kv_channels": 16, "eos_token_id": 499,
}  # fmt: skip


def qwen1(folder: Path) -> Path:
    random = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN),
        "transformer.ln_f.weight": (HIDDEN,),
    }  # fmt: skip
    for layer in ("transformer.h.0", "transformer.h.1"):
        shapes |= {
            f"{layer}.ln_1.weight": (HIDDEN,), f"{layer}.ln_2.weight": (HIDDEN,),
            f"{layer}.attn.c_attn.weight": (3 * HIDDEN, HIDDEN),
            f"{layer}.attn.c_attn.bias": (3 * HIDDEN,),
            f"{layer}.attn.c_proj.weight": (HIDDEN, HIDDEN),
            f"{layer}.mlp.w1.weight": (MIDDLE, HIDDEN), f"{layer}.mlp.w2.weight": (MIDDLE, HIDDEN),
            f"{layer}.mlp.c_proj.weight": (HIDDEN, MIDDLE),
        }  # fmt: skip
    tensors = {name: torch.randn(shape, generator=random) * 0.2 for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(QWEN1))
    return folder


@pytest.fixture(params=["llama", "qwen1"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, make_model: Callable[..., tuple[Path, Any]]
) -> Path:
    if request.param == "qwen1":
        return qwen1(tmp_path)
    scaling = {"rope_type": "dynamic", "factor": 8.0}
    return make_model("llama", max_position_embeddings=TRAINED, rope_scaling=scaling)[0]


def test_answers_do_not_depend_on_what_is_cached(folder: Path) -> None:
    ids = torch.randint(0, 498, (120,), generator=torch.Generator().manual_seed(1)).tolist()
    prompts = [ids[:length] for length in (28, 100, 120, 30, 100, 70)]
    alone = []
    for prompt in prompts:
        with tiny_llm(folder) as llm:
            alone.append(llm.generate([prompt], GREEDY, use_tqdm=False)[0])
    with tiny_llm(folder) as llm:
        together = [llm.generate([prompt], GREEDY, use_tqdm=False)[0] for prompt in prompts]
    for one, other in zip(together, alone, strict=True):
        assert one.outputs[0].token_ids == other.outputs[0].token_ids
        for row, right in zip(one.outputs[0].logprobs, other.outputs[0].logprobs, strict=True):
            assert row.keys() == right.keys()
            assert max(abs(row[token].logprob - right[token].logprob) for token in row) < 1e-4
    assert [one.num_cached_tokens for one in together] == [0, 0, 0, 16, 96, 0]
