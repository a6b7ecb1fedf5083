"""Llama, and Mistral, which is Llama with a sliding window."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.blocks.windows import read_window


class Llama(DecoderModel):
    """Serves `LlamaForCausalLM` and `MistralForCausalLM`.

    `attention_bias` is for all four products of attention, `mlp_bias` for all of the feed-forward
    part. A Mistral config without `sliding_window` has the window 4096, one that says null has
    none; a Llama config has none whatever it says.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
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
