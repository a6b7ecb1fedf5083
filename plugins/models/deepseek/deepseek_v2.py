"""DeepSeek-V2 and V2-Lite."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.shape import DecoderShape
from jackfield.plugins.models.deepseek.latent_reader import read_latent_shape
from jackfield.plugins.models.deepseek.mixture_reader import read_mixture, read_softmax_routing


class DeepseekV2(DecoderModel):
    """Serves `DeepseekV2ForCausalLM`: latent attention, and experts chosen by a softmax.

    The weights of a token's experts are scaled by `routed_scaling_factor`, or, with
    `norm_topk_prob`, sum to 1.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        shape = read_latent_shape(reader, interleaved=True)
        mixture = read_mixture(reader, shape.num_layers, read_softmax_routing)
        return replace(shape, mixture=mixture)
