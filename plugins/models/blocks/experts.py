"""The feed-forward part of a layer whose tokens go to a few of many experts each.

Shape suffixes: T tokens of the step, D model width, E experts, F feed-forward width of an expert.
"""

from torch import Tensor
from torch.nn.functional import linear

from jackfield.core.api.errors import ModelError
from jackfield.core.api.kernel import Operations
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.mixture import Mixture
from jackfield.plugins.models.blocks.mlp import GatedMlp
from jackfield.plugins.models.blocks.routing import Chosen, route


class Router:
    """The product that scores experts, and the choice."""

    def __init__(
        self, prefix: str, hidden: int, mixture: Mixture, ops: Operations, load: LinearLoader
    ) -> None:
        count = mixture.routing.num_experts
        self._linear, self._routing, self._precise = ops.linear, mixture.routing, mixture.precise
        name = f"{prefix}.gate"
        if mixture.precise:
            self._weight = load.matrix(f"{name}.weight", count, hidden).float()
        else:
            self._weight = load.whole(name, count, hidden)
        self._bias_E = None
        if mixture.correction:
            self._bias_E = load.exact_vector(f"{name}.e_score_correction_bias", count)

    def __call__(self, x_TD: Tensor) -> Chosen:
        if self._precise:
            logits_TE = linear(x_TD.float(), self._weight)
        else:
            logits_TE = self._linear(x_TD, self._weight)
        return route(logits_TE, self._routing, self._bias_E)


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

    Raises `ModelError` if no kernel serves `experts`. When weights are divided each rank holds a
    part of every expert, and ranks add their results up.
    """

    def __init__(
        self, layer: int, hidden: int, mixture: Mixture, ops: Operations, load: LinearLoader
    ) -> None:
        if ops.experts is None:
            raise ModelError(
                "The model has experts, and no kernel of the stack serves 'experts'; "
                "add 'torch' to kernel.stack."
            )
        prefix = f"model.layers.{layer}.{mixture.names.block}"
        self._experts = ops.experts
        self._router = Router(prefix, hidden, mixture, ops, load)
        self._gate_up_E2FD, self._down_EDF = _stacks(prefix, hidden, mixture, load)
        self._shared = None
        if mixture.shared_width:
            self._shared = SharedExpert(prefix, hidden, mixture, ops, load)

    def __call__(self, x_TD: Tensor) -> Tensor:
        chosen = self._router(x_TD)
        out_TD = self._experts(
            x_TD, chosen.ids_TK, chosen.weights_TK, self._gate_up_E2FD, self._down_EDF
        )
        return out_TD if self._shared is None else out_TD.add_(self._shared(x_TD))


def _stacks(
    prefix: str, hidden: int, mixture: Mixture, load: LinearLoader
) -> tuple[Tensor, Tensor]:
    """Gate and up of all experts, and down."""
    names, width = mixture.names, mixture.width
    experts = [f"{prefix}.experts.{expert}" for expert in range(mixture.routing.num_experts)]
    rows = {names.gate: width, names.up: width}
    downs = [f"{expert}.{names.down}" for expert in experts]
    return load.row_stack(experts, rows, hidden), load.column_stack(downs, hidden, width)
