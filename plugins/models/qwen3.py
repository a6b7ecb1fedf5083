"""Qwen3, without experts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Attend, ModelInputs, ModelSpec, Shard, Weights
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder import Decoder
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.blocks.windows import read_switched_windows


class Qwen3:
    """Serves `Qwen3ForCausalLM`: Llama with a norm on each query and key.

    `attention_bias` is for all four products of attention. With `use_sliding_window` the layers
    from `max_window_layers` on see `sliding_window` positions.
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
    windows = read_switched_windows(reader, shape.num_layers)
    bias = reader.flag("attention_bias", False)
    return replace(shape, qkv_bias=bias, output_bias=bias, qk_norm=True, windows=windows)
