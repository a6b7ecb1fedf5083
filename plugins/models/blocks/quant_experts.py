"""Takes the quantized weights of a layer's experts, of which one at a time is held beside what is
kept of them."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.model import Split, Weights
from jackfield.core.api.quant import QuantizedWeights, QuantWeight
from jackfield.core.api.quant_experts import QuantExpert, QuantExperts
from jackfield.plugins.models.blocks.mixture import ExpertNames
from jackfield.plugins.models.blocks.quant_merge import merge
from jackfield.plugins.models.blocks.share import Share

PLAIN = "some are stored plain, or so that ranks cannot share them"
MIXED = "gate and up are quantized in different ways, or have their inputs in different orders"
VARIED = "they are not all quantized alike"
BLOCKED = "inputs that were sorted by activations cannot be put in order where outputs share scales"

log = logging.getLogger("jackfield.models")


class ExpertParts(NamedTuple):
    """Which weights a rank takes. prefixes: paths of its experts. width: its part of each."""

    prefixes: Sequence[str]
    names: ExpertNames
    hidden: int
    width: Share


class Taken(NamedTuple):
    """What there is of an expert as it is stored."""

    gate: QuantWeight | None
    up: QuantWeight | None
    down: QuantWeight | None


class CannotKeep(Exception):
    """Why the experts of a layer have to be dequantized, as the end of a sentence."""


class QuantExpertLoader:
    """Of a model. Says once of each reason why experts are dequantized."""

    def __init__(self, serves: QuantExperts, weights: QuantizedWeights) -> None:
        self._serves, self._weights = serves, weights
        self._told: set[str] = set()

    def packed(self, parts: ExpertParts) -> Any:
        """What `QuantExperts` makes of a layer's experts; None if they have to be taken plain."""
        first, *others = parts.prefixes
        found = self._take(first, parts)
        try:
            if not any(found):
                self._require_none(others, parts)
                return None
            rest = (self._take(prefix, parts) for prefix in others)
            return self._serves.pack(_alike(chain([found], rest)), len(parts.prefixes))
        except CannotKeep as reason:
            self._tell(str(reason))
            return None

    def _take(self, prefix: str, parts: ExpertParts) -> Taken:
        names, (total, _), hidden = parts.names, parts.width, parts.hidden
        rows, columns = parts.width.split(Split.ROWS), parts.width.split(Split.COLUMNS)
        take = self._weights.take_quantized
        return Taken(
            take(f"{prefix}.{names.gate}.weight", (total, hidden), *rows),
            take(f"{prefix}.{names.up}.weight", (total, hidden), *rows),
            take(f"{prefix}.{names.down}.weight", (hidden, total), *columns),
        )

    def _require_none(self, prefixes: Sequence[str], parts: ExpertParts) -> None:
        """Of all, since whoever counts weights wants to know which could be kept."""
        found = [any(self._take(prefix, parts)) for prefix in prefixes]
        if any(found):
            raise CannotKeep(PLAIN)

    def _tell(self, reason: str) -> None:
        if reason not in self._told:
            log.warning("Experts are dequantized while they are loaded, since %s.", reason)
        self._told.add(reason)


def quant_expert_loader(serves: QuantExperts | None, weights: Weights) -> QuantExpertLoader | None:
    """None where weights are plain, or are to be dequantized when they are taken."""
    if serves is None or not isinstance(weights, QuantizedWeights):
        return None
    return QuantExpertLoader(serves, weights)


def _alike(experts: Iterator[Taken]) -> Iterator[QuantExpert]:
    """Raises `CannotKeep` for the first that is not as those before it."""
    form = None
    for taken in experts:
        expert = _merged(taken)
        found = tuple(_form(weight) for weight in expert)
        if found != (form or found):
            raise CannotKeep(VARIED)
        form = found
        yield expert


def _form(weight: QuantWeight) -> tuple[Any, ...]:
    return weight.kind, weight.group, weight.rows, weight.shape, weight.scales_RG.dtype


def _merged(taken: Taken) -> QuantExpert:
    if taken.gate is None or taken.up is None or taken.down is None:
        raise CannotKeep(PLAIN)
    gate_up = merge([taken.gate, taken.up])
    if gate_up is None:
        raise CannotKeep(MIXED)
    return _in_order(gate_up, taken.down)


def _in_order(gate_up: QuantWeight, down: QuantWeight) -> QuantExpert:
    """With the outputs of gate and up in the order of what the columns of down belong to."""
    if down.order_I is None:
        return QuantExpert(gate_up, down)
    if gate_up.rows > 1:
        raise CannotKeep(BLOCKED)
    both = torch.cat((down.order_I, down.order_I + down.shape[1]))
    zeros_RG = gate_up.zeros_RG
    gate_up = replace(
        gate_up,
        values=_outputs(gate_up.values.view(torch.uint8), both).view(gate_up.values.dtype),
        scales_RG=_outputs(gate_up.scales_RG, both),
        zeros_RG=None if zeros_RG is None else _outputs(zeros_RG, both),
    )
    return QuantExpert(gate_up, replace(down, order_I=None))


def _outputs(table: Tensor, order: Tensor) -> Tensor:
    return table.index_select(0, order)
