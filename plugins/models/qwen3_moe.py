"""Qwen3 with experts."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.mixture import read_switched_mixture
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.blocks.windows import read_window


class Qwen3Moe(DecoderModel):
    """Serves `Qwen3MoeForCausalLM`: Qwen3 whose tokens go to `num_experts_per_tok` experts each.

    Layers outside `decoder_sparse_step`, and those of `mlp_only_layers`, have a plain feed-forward
    part of `intermediate_size`. With `use_sliding_window` every layer sees `sliding_window`
    positions.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        shape = read_shape(reader)
        bias = reader.flag("attention_bias", False)
        window = read_window(reader) if reader.flag("use_sliding_window", False) else None
        return replace(
            shape,
            qkv_bias=bias,
            output_bias=bias,
            qk_norm=True,
            windows=(window,) * shape.num_layers,
            mixture=read_switched_mixture(reader, shape.num_layers),
        )
