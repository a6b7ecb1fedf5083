"""What the config.json of a DeepSeek model says of its experts."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from jackfield.plugins.models.blocks.config_reader import ConfigReader
from jackfield.plugins.models.blocks.mixture import Mixture, read_top_k
from jackfield.plugins.models.blocks.routing import Routing

SHARED = "shared_experts"
GROUPED = "group_limited_greedy"


class Groups(NamedTuple):
    """Into how many experts are divided, and from how many of them a token's may come."""

    number: int
    chosen: int


def read_mixture(
    reader: ConfigReader, num_layers: int, read_routing: Callable[[ConfigReader], Routing]
) -> Mixture | None:
    """None = no layer has experts. The router's product is made in float32."""
    layers = _read_layers(reader, num_layers)
    if not layers or not reader.has("n_routed_experts"):
        return None
    routing = read_routing(reader)
    width = reader.integer("moe_intermediate_size")
    return Mixture(
        routing=routing,
        width=width,
        layers=layers,
        shared_name=SHARED,
        shared_width=width * reader.integer("n_shared_experts", 0, minimum=0),
        precise=True,
        correction=routing.scoring == "sigmoid",
    )


def _read_layers(reader: ConfigReader, num_layers: int) -> frozenset[int]:
    """Every `moe_layer_freq`th layer that is not among the first `first_k_dense_replace`."""
    first = reader.integer("first_k_dense_replace", 0, minimum=0)
    step = reader.integer("moe_layer_freq", 1)
    return frozenset(layer for layer in range(0, num_layers, step) if layer >= first)


def read_softmax_routing(reader: ConfigReader) -> Routing:
    """Of models whose scores are a softmax."""
    require(reader, "scoring_func", {"softmax"}, "softmax")
    method = require(reader, "topk_method", {"greedy", GROUPED}, "greedy")
    num_experts = reader.integer("n_routed_experts")
    groups = read_groups(reader, num_experts) if method == GROUPED else Groups(1, 1)
    normalize = reader.flag("norm_topk_prob", False)
    return Routing(
        num_experts=num_experts,
        top_k=read_top_k(reader, num_experts),
        scoring="softmax",
        normalize=normalize,
        scale=_read_scale(reader, normalize),
        num_groups=groups.number,
        chosen_groups=groups.chosen,
        group_score="max",
    )


def _read_scale(reader: ConfigReader, normalize: bool) -> float:
    """Weights are normalized or scaled: implementations differ in what they do with both."""
    scale = reader.number("routed_scaling_factor", 1.0)
    if normalize and scale != 1.0:
        reader.refuse("routed_scaling_factor", "1.0 where norm_topk_prob is true")
    return scale


def read_groups(reader: ConfigReader, num_experts: int) -> Groups:
    """`n_group` and `topk_group`."""
    groups = reader.integer("n_group")
    if num_experts % groups:
        reader.refuse("n_group", f"a divisor of n_routed_experts, {num_experts}")
    chosen = reader.integer("topk_group")
    if chosen > groups:
        reader.refuse("topk_group", f"at most n_group, {groups}")
    top_k = read_top_k(reader, num_experts)
    if top_k > chosen * (num_experts // groups):
        reader.refuse("num_experts_per_tok", "at most the experts of topk_group groups")
    return Groups(groups, chosen)


def require(reader: ConfigReader, key: str, values: Collection[str], default: str) -> str:
    """A string that is one of few."""
    value = reader.text(key, default)
    if value not in values:
        reader.refuse(key, " or ".join(repr(known) for known in sorted(values)))
    return value
