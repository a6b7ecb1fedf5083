"""Qwen2 with experts, one of which is shared by all tokens."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.mixture import Mixture, read_switched_mixture
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape
from jackfield.plugins.models.blocks.windows import read_alternating_windows


class Qwen2Moe(DecoderModel):
    """Serves `Qwen2MoeForCausalLM`: Qwen2 whose tokens go to `num_experts_per_tok` experts each,
    and to a shared one behind a gate.

    Layers outside `decoder_sparse_step`, and those of `mlp_only_layers`, have a plain feed-forward
    part of `intermediate_size`. `qkv_bias` can be switched off. With `use_sliding_window` every
    other layer before `max_window_layers` sees `sliding_window` positions.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        shape = read_shape(reader)
        return replace(
            shape,
            qkv_bias=reader.flag("qkv_bias", True),
            windows=read_alternating_windows(reader, shape.num_layers),
            mixture=_mixture(reader, shape.num_layers),
        )


def _mixture(reader: ConfigReader, num_layers: int) -> Mixture:
    shared_width = reader.integer("shared_expert_intermediate_size")
    mixture = read_switched_mixture(reader, num_layers)
    return replace(mixture, shared_width=shared_width, shared_gate=True)
