"""Experts as a model asks for them.

Shape suffixes: T tokens of the step, K experts of a token, E experts, D model width, F feed-forward
width of an expert.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api import QuantExpert, Routing
from jackfield.core.checkpoint.outline_weights import META


class Choice(NamedTuple):
    """How a layer chooses. logits: their type. bias: whether there is one for the choice."""

    routing: Routing
    logits: torch.dtype
    bias: bool


class ExpertLayer(NamedTuple):
    """One layer's experts, on one rank. held: experts of which it has weights. width: of its part
    of each. weight_bytes: of one. packed: one of them, if they stay quantized."""

    layer: int
    held: int
    hidden: int
    width: int
    weight_bytes: int
    choice: Choice
    packed: QuantExpert | None = None

    @property
    def weights(self) -> int:
        """Of one expert."""
        return 3 * self.hidden * self.width


class OutlineExperts:
    """Serves `experts`, and `route` by a method."""

    def __init__(self) -> None:
        self._found: list[ExpertLayer] = []
        self._choice: Choice | None = None

    def layers(self, numbers: Sequence[int] | None) -> tuple[ExpertLayer, ...]:
        """All, in the order of the model. numbers: of its layers that have experts."""
        found = self._found
        places = range(len(found)) if numbers is None else numbers
        pairs = zip(found, places, strict=True)
        return tuple(one._replace(layer=layer) for one, layer in pairs)

    def route(
        self,
        logits_TE: Tensor,
        routing: Routing,
        bias_E: Tensor | None = None,
        slots_T: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Of no content, as all else."""
        self._choice = Choice(routing, logits_TE.dtype, bias_E is not None)
        shape = len(logits_TE), routing.top_k
        ids_TK = torch.empty(shape, dtype=torch.int64, device=META)
        return ids_TK, torch.empty(shape, dtype=torch.float32, device=META)

    def __call__(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        weights_TK: Tensor,
        gate_up_E2FD: Tensor,
        down_EDF: Tensor,
        counts_E: Tensor | None = None,
    ) -> Tensor:
        held, _, width = down_EDF.shape
        size = (gate_up_E2FD.nbytes + down_EDF.nbytes) // held
        return self.note(x_TD, ids_TK, (held, width, size))

    def note(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        sizes: tuple[int, int, int],
        packed: QuantExpert | None = None,
    ) -> Tensor:
        """sizes: experts that are held, their width, and bytes of one."""
        held, width, size = sizes
        choice = self._choice or Choice(Routing(num_experts=held, top_k=ids_TK.shape[1]),
                                        torch.float32, False)  # fmt: skip
        hidden = x_TD.shape[1]
        self._found.append(ExpertLayer(0, held, hidden, width, size, choice, packed))
        return torch.empty_like(x_TD)


class OutlineQuantExperts:
    """Serves `quant_experts`."""

    def __init__(self, notes: OutlineExperts) -> None:
        self._notes = notes

    def pack(self, experts: Iterable[QuantExpert], count: int) -> tuple[QuantExpert, int]:
        """One of them, and how many there are."""
        *_, last = experts
        return last, count

    def __call__(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        weights_TK: Tensor,
        packed: tuple[QuantExpert, int],
        counts_E: Tensor | None = None,
    ) -> Tensor:
        expert, count = packed
        size = expert.gate_up.nbytes + expert.down.nbytes
        sizes = count, expert.down.shape[1], size
        return self._notes.note(x_TD, ids_TK, sizes, expert)
