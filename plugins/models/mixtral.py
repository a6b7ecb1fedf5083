"""Mixtral: Mistral with experts."""

from dataclasses import replace

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.mixture import ExpertNames, Mixture, read_top_k
from jackfield.plugins.models.blocks.routing import Routing
from jackfield.plugins.models.blocks.shape import DecoderShape, read_shape

NAMES = ExpertNames("block_sparse_moe", gate="w1", up="w3", down="w2")


class Mixtral(DecoderModel):
    """Serves `MixtralForCausalLM`: every layer has experts, and their weights sum to 1.

    `intermediate_size` is that of one expert. With a `sliding_window` all layers have it. The base
    of the rotation has to be given, since implementations differ in what they take without it.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        shape = read_shape(reader)
        if not any(each.has("rope_theta") for each in (reader, reader.section("rope_parameters"))):
            reader.refuse("rope_theta", "a positive number")
        window = reader.integer("sliding_window") if reader.has("sliding_window") else None
        return replace(
            shape,
            norm_eps=reader.number("rms_norm_eps", 1e-5),
            windows=(window,) * shape.num_layers,
            mixture=_mixture(reader, shape),
        )


def _mixture(reader: ConfigReader, shape: DecoderShape) -> Mixture:
    num_experts = reader.integer("num_local_experts")
    return Mixture(
        routing=Routing(num_experts=num_experts, top_k=read_top_k(reader, num_experts)),
        width=shape.intermediate_size,
        layers=frozenset(range(shape.num_layers)),
        names=NAMES,
    )
