"""What a config.json says wrong is refused by name."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch

from jackfield.core.api.errors import CheckpointError, ModelError
from jackfield.core.api.model import LayerGroup, Shard
from jackfield.plugins.models.blocks.attention import Attention
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.mlp import Mlp
from jackfield.plugins.models.blocks.shape import read_shape
from jackfield.plugins.models.llama import Llama
from jackfield.plugins.models.qwen2 import Qwen2
from jackfield.plugins.models.qwen3 import Qwen3

TINY: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"hidden_size": None}, ["lacks hidden_size", "integer"]),
        ({"vocab_size": "20"}, ["vocab_size is '20'", "integer"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers is 0", "at least 1"]),
        ({"num_hidden_layers": True}, ["num_hidden_layers is True"]),
        ({"intermediate_size": -4}, ["intermediate_size is -4"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads is 3", "num_attention_heads, 4"]),
        ({"hidden_size": 10}, ["num_attention_heads is 4", "hidden_size, 10"]),
        ({"head_dim": 0}, ["head_dim is 0"]),
        ({"head_dim": 3}, ["partial_rotary_factor makes 3 of 3"]),
        ({"hidden_act": "gelu"}, ["hidden_act is 'gelu'", "'silu'"]),
        ({"rms_norm_eps": "small"}, ["rms_norm_eps is 'small'", "number"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings is 'yes'", "true or false"]),
        ({"rope_theta": "big"}, ["rope_theta is 'big'"]),
        ({"rope_scaling": [1]}, ["rope_scaling is [1]", "mapping"]),
        ({"rope_scaling": {"type": "longrope"}}, ["rope_scaling.type is 'longrope'", "'yarn'"]),
        ({"rope_scaling": {"rope_type": "linear"}}, ["lacks rope_scaling.factor"]),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2}}, ["low_freq_factor"]),
        ({"rope_parameters": {"full_attention": {}}}, ["rope_parameters.full_attention", "all"]),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, ["'dynamic'", "more than 2"]),
    ],
)
def test_refused(changes: dict[str, Any], parts: list[str]) -> None:
    for model in (Llama, Qwen2, Qwen3):
        with pytest.raises(ModelError) as caught:
            model.describe({**TINY, **changes})
        for part in ["config.json", *parts]:
            assert part in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"layer_types": ["full_attention"]}, "2 entries"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "'sliding_attention'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "no sliding_window"),
        ({"use_sliding_window": 1}, "true or false"),
        ({"use_sliding_window": True, "sliding_window": 0}, "sliding_window is 0"),
    ],
)
def test_refused_windows(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(ModelError, match=part):
        Qwen2.describe({**TINY, **changes})


def test_groups_hold_every_layer_once() -> None:
    config = {**TINY, "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 5}
    types = ["sliding_attention", "full_attention"] * 2
    spec = Qwen3.describe({**config, "layer_types": types})
    assert spec.groups == (LayerGroup((0, 2), 5), LayerGroup((1, 3), None))


def test_absent_keys_mean_the_defaults_of_the_architecture() -> None:
    spec = Llama.describe(TINY)
    assert (spec.head_dim, spec.groups) == (2, (LayerGroup((0, 1), None),))
    mistral = {**TINY, "architectures": ["MistralForCausalLM"]}
    assert Llama.describe(mistral).groups == (LayerGroup((0, 1), 4096),)
    assert Llama.describe({**mistral, "sliding_window": None}).groups[0].window is None


def tensors(reference: ModuleType, **changes: Any) -> dict[str, torch.Tensor]:
    taken: dict[str, torch.Tensor] = {}

    class Recording:
        def take(self, name: str, shape: tuple[int, ...], split: Any = None) -> torch.Tensor:
            taken[name] = torch.randn(shape)
            return taken[name].clone()

        def has(self, name: str) -> bool:
            return False

        def ignore(self, pattern: str) -> None:
            pass

    Llama({**TINY, **changes}, reference.operations(), Shard(), Recording())
    return taken


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("stored", [True, False])
def test_tied_and_stored_heads(
    tied: bool, stored: bool, reference: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    config = {**TINY, "tie_word_embeddings": tied}
    held = tensors(reference, tie_word_embeddings=tied)
    head = torch.randn(20, 8)
    held.pop("lm_head.weight", None)
    weights = reference.DictWeights(held | ({"lm_head.weight": head} if stored else {}))
    if not tied and not stored:
        with pytest.raises(CheckpointError, match=r"lm_head\.weight"):
            Llama(config, reference.operations(), Shard(), weights)
        return
    model = Llama(config, reference.operations(), Shard(), weights)
    used = held["model.embed_tokens.weight"] if tied else head
    hidden = torch.randn(3, 8)
    torch.testing.assert_close(model.logits(hidden), hidden @ used.T)
    assert not weights.left
    assert ("lm_head.weight" in caplog.text) == (tied and stored)


def test_frequencies_of_early_checkpoints_are_ignored(reference: ModuleType) -> None:
    old = {"model.layers.1.self_attn.rotary_emb.inv_freq": torch.ones(1)}
    weights = reference.DictWeights(tensors(reference) | old)
    Llama(TINY, reference.operations(), Shard(), weights)
    assert not weights.left


def test_parts_of_ranks_add_up(reference: ModuleType) -> None:
    torch.manual_seed(0)
    held = tensors(reference, attention_bias=True, mlp_bias=True)
    shape = replace(read_shape(ConfigReader(TINY)), qkv_bias=True, output_bias=True, mlp_bias=True)
    ops, spec = reference.operations(), Llama.describe(TINY)
    x, angle = torch.randn(5, 8), torch.randn(5, 1)

    def parts(shard: Shard) -> tuple[torch.Tensor, torch.Tensor]:
        load = LinearLoader(ops.linear, shard, reference.DictWeights(held, shard))
        attention = Attention(0, shape, ops, load)
        attended = attention(x, angle.cos(), angle.sin(), reference.GrowingCache(spec))
        return attended, Mlp(0, shape, ops, load)(x)

    whole = parts(Shard())
    halves = [parts(Shard(rank, 2)) for rank in range(2)]
    for index in range(2):
        torch.testing.assert_close(halves[0][index] + halves[1][index], whole[index])


def test_more_than_one_rank_is_refused(reference: ModuleType) -> None:
    weights = reference.DictWeights({})
    with pytest.raises(ModelError, match="2 ranks"):
        Llama(TINY, reference.operations(), Shard(0, 2), weights)
