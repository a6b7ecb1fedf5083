"""What tells one mixture of experts from another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.routing import Routing


class ExpertNames(NamedTuple):
    """What a checkpoint calls the parts: the block within a layer, and an expert's products."""

    block: str = "mlp"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"


USUAL_NAMES = ExpertNames()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The feed-forward part of layers that have experts.

    width: the feed-forward width of one expert. layers: those that have experts; the others have
    a plain feed-forward part. shared_name, shared_width: of an expert that every token goes to, if
    the width is not 0. shared_gate: whether what it makes is multiplied with a sigmoid of its own.
    precise: whether the router's product is made in float32. correction: whether the checkpoint
    holds a bias for the choice.
    """

    routing: Routing
    width: int
    layers: frozenset[int]
    names: ExpertNames = USUAL_NAMES
    shared_name: str = "shared_expert"
    shared_width: int = 0
    shared_gate: bool = False
    precise: bool = False
    correction: bool = False

    def num_parameters(self, hidden_size: int) -> int:
        """Weights of one layer's mixture."""
        routing = self.routing
        wide = routing.num_experts * self.width + self.shared_width
        router = routing.num_experts + self.shared_gate
        return (3 * wide + router) * hidden_size + self.correction * routing.num_experts


def read_top_k(reader: ConfigReader, num_experts: int) -> int:
    """`num_experts_per_tok`, which is at most the number of experts."""
    top_k = reader.integer("num_experts_per_tok")
    if top_k > num_experts:
        reader.refuse("num_experts_per_tok", f"at most the number of experts, {num_experts}")
    return top_k


def read_sparse_layers(reader: ConfigReader, num_layers: int) -> frozenset[int]:
    """Of Qwen: every `decoder_sparse_step`th layer, without those of `mlp_only_layers`."""
    step = reader.integer("decoder_sparse_step", 1)
    plain: Sequence[int] = reader.integers("mlp_only_layers")
    return frozenset(range(step - 1, num_layers, step)) - frozenset(plain)


def read_switched_mixture(reader: ConfigReader, num_layers: int) -> Mixture:
    """Of Qwen, without a shared expert. The number of experts has two names."""
    key = "num_local_experts" if reader.has("num_local_experts") else "num_experts"
    num_experts = reader.integer(key)
    return Mixture(
        routing=Routing(
            num_experts=num_experts,
            top_k=read_top_k(reader, num_experts),
            normalize=reader.flag("norm_topk_prob", False),
        ),
        width=reader.integer("moe_intermediate_size"),
        layers=read_sparse_layers(reader, num_layers),
    )
