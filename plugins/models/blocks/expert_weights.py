"""The weights of a layer's experts, plain or as they are stored, behind one call."""

from typing import Any, Protocol

from torch import Tensor

from jackfield.core.api.errors import ModelError
from jackfield.core.api.experts import Experts
from jackfield.core.api.kernel import Operations
from jackfield.core.api.quant_experts import QuantExperts
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.mixture import Mixture
from jackfield.plugins.models.blocks.quant_experts import ExpertParts
from jackfield.plugins.models.blocks.routing import Chosen
from jackfield.plugins.models.blocks.share import Share


class ExpertWeights(Protocol):
    """The experts that a rank has, or its part of them."""

    def __call__(self, x_TD: Tensor, chosen: Chosen, counts_E: Tensor | None) -> Tensor:
        """As `Experts`."""


class PlainExperts:
    """Two stacks."""

    def __init__(self, experts: Experts, gate_up_E2FD: Tensor, down_EDF: Tensor) -> None:
        self._experts, self._stacks = experts, (gate_up_E2FD, down_EDF)

    def __call__(self, x_TD: Tensor, chosen: Chosen, counts_E: Tensor | None) -> Tensor:
        return self._experts(x_TD, *chosen, *self._stacks, counts_E)


class PackedExperts:
    """What `QuantExperts.pack` made."""

    def __init__(self, experts: QuantExperts, packed: Any) -> None:
        self._experts, self._packed = experts, packed

    def __call__(self, x_TD: Tensor, chosen: Chosen, counts_E: Tensor | None) -> Tensor:
        return self._experts(x_TD, *chosen, self._packed, counts_E)


def take_experts(
    prefix: str, hidden: int, mixture: Mixture, ops: Operations, load: LinearLoader
) -> ExpertWeights:
    """Of one layer. Raises `ModelError` if no kernel serves `experts`, where that is needed."""
    parts = _parts(prefix, hidden, mixture, load)
    packed = load.quant_experts.packed(parts) if load.quant_experts else None
    if packed is not None and ops.quant_experts is not None:
        return PackedExperts(ops.quant_experts, packed)
    if ops.experts is None:
        raise ModelError(
            "The model has experts, and no kernel of the stack serves 'experts'; "
            "add 'torch' to kernel.stack."
        )
    rows = {parts.names.gate: parts.width, parts.names.up: parts.width}
    downs = [f"{expert}.{parts.names.down}" for expert in parts.prefixes]
    gate_up_E2FD = load.row_stack(parts.prefixes, rows, hidden)
    return PlainExperts(ops.experts, gate_up_E2FD, load.column_stack(downs, hidden, parts.width))


def _parts(prefix: str, hidden: int, mixture: Mixture, load: LinearLoader) -> ExpertParts:
    """This rank's experts, or its part of every one."""
    shard, own = load.shard, range(mixture.routing.num_experts)
    if shard.whole_experts:
        own, width = shard.share(len(own)), Share.whole(mixture.width)
    else:
        width = Share.even(mixture.width, shard)
    prefixes = [f"{prefix}.experts.{expert}" for expert in own]
    return ExpertParts(prefixes, mixture.names, hidden, width)
