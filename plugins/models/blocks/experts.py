"""The feed-forward part of a layer whose tokens go to a few of many experts each.

Shape suffixes: T tokens of the step, K experts of a token, D model width, E experts.
"""

from torch import Tensor
from torch.nn.functional import linear

from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import Shard, Weights
from jackfield.plugins.models.blocks.expert_weights import take_experts
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.mixture import Mixture
from jackfield.plugins.models.blocks.mlp import GatedMlp
from jackfield.plugins.models.blocks.routing import NOBODY, Chosen, route


class Router:
    """The product that scores experts, and the choice."""

    def __init__(
        self, prefix: str, hidden: int, mixture: Mixture, ops: Operations, load: LinearLoader
    ) -> None:
        count = mixture.routing.num_experts
        self._linear, self._routing, self._precise = ops.linear, mixture.routing, mixture.precise
        self._route = route if ops.route is None else ops.route
        name = f"{prefix}.gate"
        if mixture.precise:
            self._weight = load.matrix(f"{name}.weight", count, hidden).float()
        else:
            self._weight = load.whole(name, count, hidden)
        self._bias_E = None
        if mixture.correction:
            self._bias_E = load.exact_vector(f"{name}.e_score_correction_bias", count)

    def __call__(self, x_TD: Tensor, slots_T: Tensor | None) -> Chosen:
        if self._precise:
            logits_TE = linear(x_TD.float(), self._weight)
        else:
            logits_TE = self._linear(x_TD, self._weight)
        return Chosen(*self._route(logits_TE, self._routing, self._bias_E, slots_T))


class SharedExpert:
    """The expert that every token goes to."""

    def __init__(
        self, prefix: str, hidden: int, mixture: Mixture, ops: Operations, load: LinearLoader
    ) -> None:
        name = f"{prefix}.{mixture.shared_name}"
        self._mlp = GatedMlp(name, hidden, mixture.shared_width, ops, load)
        self._linear = ops.linear
        self._gate = load.whole(f"{name}_gate", 1, hidden) if mixture.shared_gate else None

    def __call__(self, x_TD: Tensor) -> Tensor:
        out_TD = self._mlp(x_TD)
        if self._gate is None:
            return out_TD
        return out_TD.mul_(self._linear(x_TD, self._gate).sigmoid())


class ExpertMlp:
    """Router, experts, and the shared expert if there is one.

    Raises `ModelError` if no kernel serves `experts`, or `quant_experts` where weights stay
    quantized. When weights are divided each rank holds a
    part of every expert, or some whole ones, and in any case a part of the shared expert; ranks
    have yet to add their results up. counts_E (int64): to which it is added how many tokens each
    expert gets, on whatever rank, without those whose slot is -1.
    """

    def __init__(
        self,
        layer: int,
        hidden: int,
        mixture: Mixture,
        ops: Operations,
        load: LinearLoader,
        counts_E: Tensor | None = None,
    ) -> None:
        prefix = f"model.layers.{layer}.{mixture.names.block}"
        self._experts = take_experts(prefix, hidden, mixture, ops, load)
        self._router = Router(prefix, hidden, mixture, ops, load)
        self._counts_E, self._own = counts_E, None
        if load.shard.whole_experts:
            self._own = load.shard.share(mixture.routing.num_experts)
        self._shared = None
        if mixture.shared_width:
            self._shared = SharedExpert(prefix, hidden, mixture, ops, load)

    def __call__(self, x_TD: Tensor, slots_T: Tensor | None = None) -> Tensor:
        chosen, counts_E = self._router(x_TD, slots_T), self._counts_E
        if self._own is not None:
            if counts_E is not None:
                _count(chosen.ids_TK, counts_E)
            chosen, counts_E = _of_others_nobody(chosen, self._own), None
        out_TD = self._experts(x_TD, chosen, counts_E)
        return out_TD if self._shared is None else out_TD.add_(self._shared(x_TD))


def ignore_others(mixture: Mixture, shard: Shard, weights: Weights) -> None:
    """Experts that other ranks hold have no place here."""
    if not shard.whole_experts or shard.size == 1:
        return
    experts = range(mixture.routing.num_experts)
    own = shard.share(len(experts))
    others = "|".join(str(expert) for expert in experts if expert not in own)
    weights.ignore(rf"model\.layers\.\d+\.{mixture.names.block}\.experts\.(?:{others})\..*")


def _of_others_nobody(chosen: Chosen, own: range) -> Chosen:
    """With ids as places among one's own experts."""
    place_TK = chosen.ids_TK - own.start
    others_TK = (place_TK < 0) | (place_TK >= len(own))
    return Chosen(place_TK.masked_fill_(others_TK, NOBODY), chosen.weights_TK)


def _count(ids_TK: Tensor, counts_E: Tensor) -> None:
    """Add to each expert's, without waiting for the device."""
    id_A, last = ids_TK.flatten(), len(counts_E) - 1
    # At a start whose launches are left out ids may be anything.
    counts_E.scatter_add_(0, id_A.clamp(0, last), (id_A >= 0).to(counts_E.dtype))
