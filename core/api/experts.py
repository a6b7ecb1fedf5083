"""The operations of models that send each token to a few of many feed-forward parts.

Shape suffixes: T tokens of the step, K experts of a token, E experts, D model width, F feed-forward
width of an expert, L layers that have experts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from jackfield.core.api.operation import Operation

if TYPE_CHECKING:
    from torch import Tensor


class Experts(Operation, Protocol):
    """The weighted sum of what each token's experts make of it. Optional: only models that have
    experts need it.

    An expert is `down @ (silu(gate) * up)`, where `gate_up` makes gate and up side by side. It may
    get no token, or all of them. Its product is rounded to the type of `x`, if at all; weighted
    products are summed in float32, in an order that does not depend on the other tokens.
    """

    def __call__(
        self,
        x_TD: "Tensor",
        ids_TK: "Tensor",
        weights_TK: "Tensor",
        gate_up_E2FD: "Tensor",
        down_EDF: "Tensor",
        counts_E: "Tensor | None" = None,
    ) -> "Tensor":
        """[T, D] in the type of `x`, a tensor of the caller's own.

        ids (int64): each between 0 and E - 1, those of a token distinct, in no order; or -1, which
        is nobody: it adds nothing, whatever its weight is, and no expert is read for it. weights
        (float32): by which what the expert makes is multiplied; they need not sum to 1. counts
        (int64): how many tokens each expert got is added to it, without waiting for the device.
        `x`, ids and weights are not changed; the two packs of weights are contiguous.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How a model chooses among its experts.

    scoring: how logits become scores, each between 0 and 1. normalize: whether the weights of a
    token's experts are divided by their sum; then all are multiplied with `scale`. With more than
    one group of neighbours, only the experts of the best `chosen_groups` can be chosen; a group is
    worth its best score, or the sum of its two best.
    """

    num_experts: int
    top_k: int
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalize: bool = True
    scale: float = 1.0
    num_groups: int = 1
    chosen_groups: int = 1
    group_score: Literal["max", "top2sum"] = "max"


class Route(Operation, Protocol):
    """Which experts each token goes to. Optional: models choose by themselves without it."""

    def __call__(
        self,
        logits_TE: "Tensor",
        routing: Routing,
        bias_E: "Tensor | None" = None,
        slots_T: "Tensor | None" = None,
    ) -> "tuple[Tensor, Tensor]":
        """Ids and weights as `Experts` takes them. Scores are computed in float32.

        bias (float32): added to the scores for the choice alone, not for the weights. Of experts,
        or groups, that are worth the same any may be chosen, but the same ones each time. slots
        (int64): as in `AttnBatch`; a token whose slot is -1 gets the id -1 only. The logits are not
        changed.
        """


class ExpertHistogram(NamedTuple):
    """layers: those that have experts. counts_LE (int64): how many tokens each expert of each of
    them got; on the device, where every step adds to it."""

    layers: Sequence[int]
    counts_LE: "Tensor"


@runtime_checkable
class CountsExperts(Protocol):
    """A model that counts how many tokens each of its experts gets. Optional."""

    def expert_histogram(self) -> ExpertHistogram | None:
        """The counters, always the same tensor; tokens that are padding are not counted. None = it
        has no experts. Called once, at start; the counters are set to 0 before the first request.
        """
