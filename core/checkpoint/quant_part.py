"""Which part of a quantized weight belongs to a rank.

Shape suffixes: R and G how many scales there are along outputs and inputs.
"""

from dataclasses import replace
from math import gcd

from torch import Tensor

from jackfield.core.api.model import Shard, Split
from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.core.checkpoint.shard_slice import shard_slice

FINEST = 16
"""Inputs that share a scale at least, so that scales stay small beside values."""


def quant_part(
    name: str, weight: QuantWeight, split: Split, shard: Shard, part: range | None = None
) -> QuantWeight | None:
    """Copies, so that the rest can go. part: as of `Weights.take`.

    Where an edge lies within a block that shares a scale, the part has the scale once for each of
    smaller blocks. None for a part of the inputs whose blocks would be too small, or that were
    sorted by their activations: those of a rank are then spread unevenly over the groups. Raises
    CheckpointError for a weight that does not divide at all.
    """
    if split is Split.NONE or (shard.size == 1 and part is None):
        return weight
    rows, columns = shard_slice(name, weight.shape, split, shard, part)
    if split is Split.ROWS:
        return _outputs(weight, rows)
    return None if weight.order_I is not None else _inputs(weight, columns)


def _outputs(weight: QuantWeight, rows: slice) -> QuantWeight:
    finer = gcd(weight.rows, rows.start)
    if finer < weight.rows:
        weight = replace(_repeated(weight, 0, weight.rows // finer), rows=finer)
    part = weight.block(rows.start, rows.stop)
    zeros_RG = None if part.zeros_RG is None else part.zeros_RG.clone()
    return replace(
        part, values=part.values.clone(), scales_RG=part.scales_RG.clone(), zeros_RG=zeros_RG
    )


def _inputs(weight: QuantWeight, columns: slice) -> QuantWeight | None:
    begin, end = columns.start, columns.stop
    per_byte = 2 if weight.kind is QuantKind.INT4 else 1
    if begin % per_byte or end % per_byte:
        return None
    values = weight.values[:, begin // per_byte : end // per_byte].clone()
    shape = (weight.shape[0], end - begin)
    if weight.scales_RG.shape[1] == 1:
        return replace(weight, values=values, group=end - begin, shape=shape)
    finer = gcd(weight.group, begin, end)
    if finer < min(weight.group, FINEST):
        return None
    weight = replace(_repeated(weight, 1, weight.group // finer), group=finer)

    def table(full_RG: Tensor) -> Tensor:
        return full_RG[:, begin // finer : end // finer].clone()

    zeros_RG = None if weight.zeros_RG is None else table(weight.zeros_RG)
    return replace(
        weight, values=values, scales_RG=table(weight.scales_RG), zeros_RG=zeros_RG, shape=shape
    )


def _repeated(weight: QuantWeight, axis: int, times: int) -> QuantWeight:
    """With each scale and zero so many times, for blocks that are smaller by that."""
    if times == 1:
        return weight
    scales_RG = weight.scales_RG.repeat_interleave(times, axis)
    zeros_RG = weight.zeros_RG
    if zeros_RG is not None:
        zeros_RG = zeros_RG.repeat_interleave(times, axis)
    return replace(weight, scales_RG=scales_RG, zeros_RG=zeros_RG)
