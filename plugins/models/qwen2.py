"""Qwen2 and Qwen2.5."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.blocks.windows import read_switched_windows


class Qwen2(DecoderModel):
    """Serves `Qwen2ForCausalLM`: Llama with biases on query, key and value.

    With `use_sliding_window` the layers from `max_window_layers` on see `sliding_window` positions.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        shape = read_shape(reader)
        windows = read_switched_windows(reader, shape.num_layers)
        return replace(shape, qkv_bias=True, windows=windows)
