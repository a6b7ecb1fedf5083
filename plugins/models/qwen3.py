"""Qwen3, without experts."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.blocks.windows import read_switched_windows


class Qwen3(DecoderModel):
    """Serves `Qwen3ForCausalLM`: Llama with a norm on each query and key.

    `attention_bias` is for all four products of attention. With `use_sliding_window` the layers
    from `max_window_layers` on see `sliding_window` positions.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        shape = read_shape(reader)
        windows = read_switched_windows(reader, shape.num_layers)
        bias = reader.flag("attention_bias", False)
        return replace(shape, qkv_bias=bias, output_bias=bias, qk_norm=True, windows=windows)
