"""Folders that cannot be served are refused at the start, in one sentence that says enough."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from jackfield.core.api.errors import JackfieldError
from jackfield.core.testing.tiny_llm import tiny_llm
from jackfield.core.testing.tiny_model import write_tiny_model

UP = "model.layers.1.mlp.up_proj.weight"
Spoil = Callable[["Folder"], None]
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}


class Folder:
    """A tiny model whose files can be spoilt."""

    def __init__(self, path: Path) -> None:
        self.path = write_tiny_model(path)

    def config(self, **values: Any) -> None:
        file = self.path / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    def tensors(self, change: Callable[[dict[str, Tensor]], Any]) -> None:
        file = self.path / "model.safetensors"
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file)

    def index(self, **changes: str) -> None:
        """The tensors are in one.safetensors, but for those that are said to be elsewhere."""
        single = self.path / "model.safetensors"
        places = dict.fromkeys(load_file(single), "one.safetensors") | changes
        single.rename(self.path / "one.safetensors")
        text = json.dumps({"weight_map": places})
        (self.path / "model.safetensors.index.json").write_text(text)


CASES: Mapping[str, tuple[Spoil, list[str]]] = {
    "unknown architecture": (
        lambda f: f.config(architectures=["LlamaForCausaLM"]),
        ["'LlamaForCausaLM' has no plugin", "Did you mean 'LlamaForCausalLM'?"],
    ),
    "missing": (
        lambda f: f.tensors(lambda t: t.pop(UP)),
        ["model.safetensors", f"lacks the tensor {UP!r}", "the nearest name is 'model.layers."],
    ),
    "missing layers": (
        lambda f: f.config(num_hidden_layers=3),
        ["model.safetensors", "lacks the tensor 'model.layers.2.", "config.json asks for"],
    ),
    "surplus": (
        lambda f: f.tensors(lambda t: t.update(extra=torch.ones(2))),
        ["1 tensors", "no place in the model: extra in", "model.safetensors"],
    ),
    "surplus layers": (
        lambda f: f.config(num_hidden_layers=1),
        ["9 tensors", "model.layers.1.input_layernorm.weight in", "and 4 more"],
    ),
    "wrong shape": (
        lambda f: f.tensors(lambda t: t.update({UP: torch.ones(64, 96)})),
        ["model.safetensors", f"tensor {UP!r}", "[64, 96]", "[96, 64]"],
    ),
    "wrong sizes": (
        lambda f: f.config(intermediate_size=128),
        ["tensor 'model.layers.0.mlp.gate_proj.weight'", "[96, 64]", "makes it [128, 64]"],
    ),
    "wrong vocabulary": (
        lambda f: f.config(vocab_size=301),
        ["tensor 'model.embed_tokens.weight'", "[300, 64]", "[301, 64]"],
    ),
    "wrong type": (
        lambda f: f.tensors(lambda t: t.update({UP: t[UP].to(torch.int8)})),
        ["model.safetensors", f"tensor {UP!r}", "I8", "quantization_config"],
    ),
    "index to an absent file": (
        lambda f: f.index(**{UP: "two.safetensors"}),
        ["lacks the shard two.safetensors", "model.safetensors.index.json names"],
    ),
    "index to an absent tensor": (
        lambda f: f.index(ghost="one.safetensors"),
        ["one.safetensors lacks the tensor 'ghost'", "index places there"],
    ),
    "quantized by the config only": (
        lambda f: f.config(quantization_config=AWQ),
        ["weights are quantized (awq), but none", "remove quantization_config"],
    ),
    "bits": (
        lambda f: f.config(quantization_config={**GPTQ, "bits": 3}),
        ["config.json: quantization_config.bits is 3; expected 4 or 8"],
    ),
    "order without an order": (
        lambda f: (
            f.config(quantization_config={**GPTQ, "desc_act": True}),
            f.tensors(lambda t: t.update({
                "model.layers.0.self_attn.q_proj.qweight": torch.zeros(8, 64, dtype=torch.int32),
                "model.layers.0.self_attn.q_proj.qzeros": torch.zeros(2, 8, dtype=torch.int32),
                "model.layers.0.self_attn.q_proj.scales": torch.ones(2, 64),
            })),
        )[0],
        ["model.safetensors", "'model.layers.0.self_attn.q_proj.g_idx'", "shape [64]"],
    ),
    "quantized in other groups": (
        lambda f: (
            f.config(quantization_config=GPTQ),
            f.tensors(lambda t: t.update({
                "model.layers.0.self_attn.q_proj.qweight": torch.zeros(8, 64, dtype=torch.int32),
                "model.layers.0.self_attn.q_proj.qzeros": torch.zeros(4, 8, dtype=torch.int32),
            })),
        )[0],
        ["q_proj.qzeros'", "[4, 8]", "[2, 8]", "groups of 32", "[64, 64]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_start_says_what_is_wrong(case: str, tmp_path: Path) -> None:
    spoil, parts = CASES[case]
    folder = Folder(tmp_path / "model")
    spoil(folder)
    settings: dict[str, Any] = {"kernel.stack": ["torch"], "num_gpu_blocks_override": 4}
    with pytest.raises(JackfieldError) as caught:
        tiny_llm(folder.path, **settings, max_model_len=64)
    text = str(caught.value)
    assert caught.value.exit_code == 4
    assert [part for part in parts if part not in text] == [], text
    assert not re.search(r"[a-z]\. [A-Z]", text.replace(". Did you mean", "")), "one sentence"
