"""DeepSeek-V3 and R1."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Shard, Weights
from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.decoder_model import DecoderModel
from jackfield.plugins.models.blocks.mixture import read_top_k
from jackfield.plugins.models.blocks.routing import Routing
from jackfield.plugins.models.blocks.shape import DecoderShape
from jackfield.plugins.models.deepseek.latent_reader import read_latent_shape
from jackfield.plugins.models.deepseek.mixture_reader import read_groups, read_mixture, require


class DeepseekV3(DecoderModel):
    """Serves `DeepseekV3ForCausalLM`: latent attention, and experts chosen by a sigmoid and a bias.

    The layers that predict more than one token, which follow the others in a checkpoint, are not
    loaded. With `rope_interleave` false rotated pairs are halves.
    """

    @staticmethod
    def read(reader: ConfigReader) -> DecoderShape:
        interleaved = reader.flag("rope_interleave", True)
        shape = read_latent_shape(reader, interleaved=interleaved)
        mixture = read_mixture(reader, shape.num_layers, _read_routing)
        return replace(shape, mixture=mixture)

    def __init__(
        self, config: Mapping[str, Any], ops: Operations, shard: Shard, weights: Weights
    ) -> None:
        super().__init__(config, ops, shard, weights)
        reader = ConfigReader(config)
        first = reader.integer("num_hidden_layers")
        for layer in range(reader.integer("num_nextn_predict_layers", 1, minimum=0)):
            weights.ignore(rf"model\.layers\.{first + layer}\..*")


def _read_routing(reader: ConfigReader) -> Routing:
    require(reader, "scoring_func", {"sigmoid"}, "sigmoid")
    require(reader, "topk_method", {"noaux_tc"}, "noaux_tc")
    num_experts = reader.integer("n_routed_experts")
    groups = read_groups(reader, num_experts)
    if groups.number > 1 and num_experts < 2 * groups.number:
        reader.refuse("n_group", "groups of at least 2 experts")
    return Routing(
        num_experts=num_experts,
        top_k=read_top_k(reader, num_experts),
        scoring="sigmoid",
        normalize=reader.flag("norm_topk_prob", True),
        scale=reader.number("routed_scaling_factor"),
        num_groups=groups.number,
        chosen_groups=groups.chosen,
        group_score="top2sum",
    )
