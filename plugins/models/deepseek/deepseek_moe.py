"""DeepSeekMoE, the first model of the family that has experts."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.deepseek.mixture_reader import read_mixture, read_softmax_routing


class DeepseekMoe(DecoderModel):
    """Serves `DeepseekForCausalLM`: Llama with many small experts and a shared one.

    `attention_bias` is for all four products of attention.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        shape = read_shape(reader)
        bias = reader.flag("attention_bias", False)
        mixture = read_mixture(reader, shape.num_layers, read_softmax_routing)
        return replace(shape, qkv_bias=bias, output_bias=bias, mixture=mixture)
