"""Quantized weights of one input become one whose outputs lie side by side."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from jackfield.core.api.quant import QuantWeight


def merge(parts: Sequence[QuantWeight]) -> QuantWeight | None:
    """None if they are quantized in different ways, or have their inputs in different orders."""
    first, *others = parts
    if not all(_alike(first, other) for other in others):
        return None
    blocks = {part.rows for part in parts}
    if len(blocks) > 1 or any(part.shape[0] % part.rows for part in parts[:-1]):
        parts = [_per_output(part) for part in parts]
    outputs = sum(part.shape[0] for part in parts)
    return replace(
        parts[0],
        values=_joined([part.values for part in parts]),
        scales_RG=torch.cat([part.scales_RG for part in parts]),
        zeros_RG=_zeros(parts),
        shape=(outputs, first.shape[1]),
    )


def _alike(one: QuantWeight, other: QuantWeight) -> bool:
    same = (one.kind, one.group) == (other.kind, other.group)
    if one.order_I is None or other.order_I is None:
        return same and one.order_I is other.order_I
    return same and torch.equal(one.order_I, other.order_I)


def _per_output(part: QuantWeight) -> QuantWeight:
    """With scales for each output instead of blocks of them, which end where the weight does."""

    def spread(table_RG: Tensor) -> Tensor:
        return table_RG.repeat_interleave(part.rows, 0)[: part.shape[0]]

    zeros_RG = None if part.zeros_RG is None else spread(part.zeros_RG)
    return replace(part, scales_RG=spread(part.scales_RG), zeros_RG=zeros_RG, rows=1)


def _zeros(parts: Sequence[QuantWeight]) -> Tensor | None:
    if all(part.zeros_RG is None for part in parts):
        return None
    middle = parts[0].kind.middle
    found = [
        torch.full_like(part.scales_RG, middle, dtype=torch.uint8)
        if part.zeros_RG is None
        else part.zeros_RG
        for part in parts
    ]
    return torch.cat(found)


def _joined(values: Sequence[Tensor]) -> Tensor:
    """As bytes: not every device joins eight-bit floats."""
    return torch.cat([part.view(torch.uint8) for part in values]).view(values[0].dtype)
