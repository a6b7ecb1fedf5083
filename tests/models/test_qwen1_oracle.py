"""Qwen1 equals Qwen2 of the reference with renamed tensors, and, beyond its trained length, with
the queries and the rotation of the original."""

import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config
from transformers import Qwen2ForCausalLM as Reference

from jackfield.core.api.errors import ModelError
from jackfield.core.api.model import Shard, Split
from jackfield.core.api.quant import QuantizedWeights, QuantKind, QuantWeight
from jackfield.plugins.models.qwen1.log_scaled import log_scales
from jackfield.plugins.models.qwen1.names import qwen1_weights
from jackfield.plugins.models.qwen1.qwen1 import Qwen1

CLOSE = 5e-5
SEQ, HIDDEN, HEADS, HEAD, MIDDLE = 16, 64, 4, 16, 96
CONFIG: dict[str, Any] = {
    "architectures": ["QWenLMHeadModel"], "model_type": "qwen", "hidden_size": HIDDEN,
    "intermediate_size": 2 * MIDDLE, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "vocab_size": 300, "seq_length": SEQ, "max_position_embeddings": 128, "kv_channels": HEAD,
    "layer_norm_epsilon": 1e-5, "no_bias": True, "rotary_pct": 1.0, "rotary_emb_base": 10000,
    "use_dynamic_ntk": True, "use_logn_attn": True, "tie_word_embeddings": False,
}  # fmt: skip


def oracle(no_bias: bool) -> PreTrainedModel:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 300, "hidden_size": HIDDEN, "intermediate_size": MIDDLE,
        "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "head_dim": HEAD, "rms_norm_eps": 1e-5, "max_position_embeddings": 128,
        "initializer_range": 0.2, "attn_implementation": "eager", "tie_word_embeddings": False,
    }  # fmt: skip
    model: PreTrainedModel
    if no_bias:
        model = Reference(Qwen2Config(**sizes))
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=True, mlp_bias=True))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn(weight.shape) * 0.3)
    return model.eval()


def renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = {
        "model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f",
        "model.layers.": "transformer.h.", "input_layernorm": "ln_1",
        "post_attention_layernorm": "ln_2", "self_attn.o_proj": "attn.c_proj",
        "mlp.gate_proj": "mlp.w2", "mlp.up_proj": "mlp.w1", "mlp.down_proj": "mlp.c_proj",
    }  # fmt: skip
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if "q_proj" in name:
            parts = [tensors[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            name, tensor = name.replace("self_attn.q_proj", "attn.c_attn"), torch.cat(parts)
        for old, new in names.items():
            name = name.replace(old, new)
        if "k_proj" not in name and "v_proj" not in name:
            found[name] = tensor
    return found


def as_the_original(model: PreTrainedModel, prompt: int, ntk: bool, logn: bool) -> None:
    """Give the reference the base of this prompt, and queries that grow."""
    alpha = max(2 ** math.ceil(math.log(prompt / SEQ, 2) + 1) - 1, 1) if ntk else 1
    base = 10000 * alpha ** (HEAD / (HEAD - 2))
    steps = torch.arange(0, HEAD, 2).float() / HEAD
    model.model.rotary_emb.inv_freq = 1.0 / base**steps

    def scale(module: Any, arguments: Any, out: Tensor) -> Tensor:
        logs = [math.log(i, SEQ) if i > SEQ else 1.0 for i in range(1, out.shape[1] + 1)]
        return out * torch.tensor(logs)[None, :, None]

    for layer in model.model.layers:
        if logn:
            layer.self_attn.q_proj.register_forward_hook(scale)


@pytest.mark.parametrize("no_bias", [True, False])
@pytest.mark.parametrize(
    ("length", "ntk", "logn"),
    [(12, True, True), (16, True, True), (17, True, True), (40, True, True), (64, True, False),
     (65, True, False), (16, False, False), (16, False, True)],
)  # fmt: skip
def test_logits_equal_the_reference(
    length: int, ntk: bool, logn: bool, no_bias: bool, reference: ModuleType
) -> None:
    expected = oracle(no_bias)
    weights = reference.DictWeights(renamed(expected.state_dict()))
    config = CONFIG | {"use_dynamic_ntk": ntk, "use_logn_attn": logn, "no_bias": no_bias}
    spec = Qwen1.describe(config)
    model = Qwen1(config, reference.operations(), Shard(), weights)
    assert not weights.left
    assert spec.num_parameters == expected.num_parameters()
    as_the_original(expected, length, ntk, logn)
    ids = torch.randint(0, 300, (length,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        right = expected(torch.tensor([ids])).logits[0]
    for cuts in ([], [5, 9], range(1, length)):
        found = reference.run(model, spec, ids, cuts, prompt_len=length)
        torch.testing.assert_close(found, right, atol=CLOSE, rtol=CLOSE)


def test_an_answer_keeps_the_base_of_its_prompt(reference: ModuleType) -> None:
    expected = oracle(True)
    weights = reference.DictWeights(renamed(expected.state_dict()))
    model = Qwen1(CONFIG, reference.operations(), Shard(), weights)
    as_the_original(expected, 14, ntk=True, logn=True)
    ids = list(range(40))
    found = reference.run(model, Qwen1.describe(CONFIG), ids, range(14, 40), prompt_len=14)
    with torch.inference_mode():
        right = expected(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(found, right, atol=CLOSE, rtol=CLOSE)


def test_how_far_contexts_reach_and_what_is_shared() -> None:
    spec = Qwen1.describe(CONFIG)
    assert (spec.max_positions, spec.uses_prompt_lens, spec.alike_prompts) == (128, True, SEQ)
    spec = Qwen1.describe(CONFIG | {"use_dynamic_ntk": False})
    assert (spec.max_positions, spec.uses_prompt_lens, spec.alike_prompts) == (SEQ, False, None)


def test_queries_grow_from_the_trained_length_on() -> None:
    scales = log_scales(torch.tensor([0, 15, 16, 255]), 16).tolist()
    assert scales == pytest.approx([1.0, 1.0, math.log(17, 16), 2.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"intermediate_size": 191}, "intermediate_size is 191; expected an even number"),
        ({"seq_length": None}, "lacks seq_length"),
        ({"max_position_embeddings": 8}, "max_position_embeddings is 8"),
        ({"rotary_pct": 0.1}, "rotary_pct is 0.1"),
        ({"scale_attn_weights": False}, "scale_attn_weights is False; expected true"),
        ({"kv_channels": None, "num_attention_heads": 5}, "num_attention_heads is 5"),
    ],
)
def test_what_is_not_served_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        Qwen1.describe(CONFIG | changes)


class Quantized:
    """Every weight is quantized, and names itself by what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[int, ...], Split]] = []

    def take_quantized(
        self,
        name: str,
        shape: tuple[int, int],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> QuantWeight | None:
        self.asked.append((name, shape, split))
        values = torch.arange(shape[0], dtype=torch.uint8)[:, None].expand(shape).contiguous()
        scales = torch.arange(shape[0], dtype=torch.float32)[:, None]
        return QuantWeight(QuantKind.INT8, values, scales, None, shape[1], 1, shape)

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        split: Split = Split.NONE,
        part: range | None = None,
    ) -> Tensor:
        raise AssertionError

    def take_exact(self, name: str, shape: tuple[int, ...]) -> Tensor:
        raise AssertionError

    def has(self, name: str) -> bool:
        return name == "transformer.h.0.ln_1.weight"

    def ignore(self, pattern: str) -> None:
        raise AssertionError


@pytest.mark.parametrize("size", [1, 2])
def test_quantized_products_are_cut_out_of_the_merged_one(size: int) -> None:
    stored = Quantized()
    weights = qwen1_weights(stored, Shard(size - 1, size))
    assert isinstance(weights, QuantizedWeights)
    found = [
        weights.take_quantized(f"model.layers.1.self_attn.{part}_proj.weight", (8, 4), Split.ROWS)
        for part in "qkv"
    ]
    rows = [part.values[:, 0].tolist() for part in found if part is not None]
    assert rows == [list(range(i * 8 + 8 - 8 // size, i * 8 + 8)) for i in range(3)]
    assert [part.scales_RG[:, 0].tolist() for part in found if part is not None] == rows
    assert stored.asked == [("transformer.h.1.attn.c_attn.weight", (24, 4), Split.NONE)]
    weights.take_quantized("model.layers.1.mlp.gate_proj.weight", (6, 4), Split.ROWS)
    assert stored.asked[1] == ("transformer.h.1.mlp.w2.weight", (6, 4), Split.ROWS)
    assert weights.has("model.layers.0.input_layernorm.weight")
