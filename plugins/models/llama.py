"""Llama, and Mistral, which is Llama with a sliding window."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend, ModelInputs, ModelSpec, Shard, Weights
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder import Decoder
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.blocks.windows import read_window


class Llama:
    """Serves `LlamaForCausalLM` and `MistralForCausalLM`.

    `attention_bias` is for all four products of attention, `mlp_bias` for all of the feed-forward
    part. A Mistral config without `sliding_window` has the window 4096, one that says null has
    none; a Llama config has none whatever it says.
    """

    @classmethod
    def describe(cls, config: Mapping[str, Any]) -> ModelSpec:
        return _shape(config).spec()

    def __init__(
        self, config: Mapping[str, Any], ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        self._decoder = Decoder(_shape(config), ops, shard, weights)

    def forward(self, inputs: ModelInputs, attend: Attend) -> Tensor:
        return self._decoder.forward(inputs, attend)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        return self._decoder.logits(hidden_RD)


def _shape(config: Mapping[str, Any]) -> DecoderShape:
    reader = ConfigReader(config)
    shape = read_shape(reader)
    bias = reader.flag("attention_bias", False)
    window = read_window(reader) if _is_mistral(reader) else None
    return replace(
        shape,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=reader.flag("mlp_bias", False),
        windows=(window,) * shape.num_layers,
    )


def _is_mistral(reader: ConfigReader) -> bool:
    if reader.has("model_type"):
        return reader.text("model_type", "") == "mistral"
    return "MistralForCausalLM" in reader.texts("architectures")
