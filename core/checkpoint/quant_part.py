"""Which part of a quantized weight belongs to a rank."""

from dataclasses import replace

from torch import Tensor

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.model import Shard, Split
from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.core.checkpoint.shard_slice import shard_slice


def quant_part(name: str, weight: QuantWeight, split: Split, shard: Shard) -> QuantWeight:
    """Copies, so that the rest can go. Raises CheckpointError for one that does not divide."""
    if split is Split.NONE or shard.size == 1:
        return weight
    rows, columns = shard_slice(name, weight.shape, split, shard)
    if split is Split.ROWS:
        if rows.start % weight.rows or (rows.stop - rows.start) % weight.rows:
            raise _undivided(name, weight, shard, f"blocks of {weight.rows} outputs")
        part = weight.block(rows.start, rows.stop)
        zeros_RG = None if part.zeros_RG is None else part.zeros_RG.clone()
        return replace(
            part, values=part.values.clone(), scales_RG=part.scales_RG.clone(), zeros_RG=zeros_RG
        )
    return _inputs(name, weight, columns, shard)


def _inputs(name: str, weight: QuantWeight, columns: slice, shard: Shard) -> QuantWeight:
    if weight.order_I is not None:
        raise _undivided(name, weight, shard, "inputs that were sorted by their activations")
    size, whole = columns.stop - columns.start, weight.scales_RG.shape[1] == 1
    if not whole and size % weight.group:
        raise _undivided(name, weight, shard, f"groups of {weight.group} inputs")
    per_byte = 2 if weight.kind is QuantKind.INT4 else 1
    if size % per_byte:
        raise _undivided(name, weight, shard, "pairs of inputs")
    values = weight.values[:, columns.start // per_byte : columns.stop // per_byte].clone()
    groups = slice(columns.start // weight.group, columns.stop // weight.group)

    def table(full_RG: Tensor) -> Tensor:
        return full_RG if whole else full_RG[:, groups].clone()

    zeros_RG = None if weight.zeros_RG is None else table(weight.zeros_RG)
    return QuantWeight(
        weight.kind, values, table(weight.scales_RG), zeros_RG, size if whole else weight.group,
        weight.rows, (weight.shape[0], size),
    )  # fmt: skip


def _undivided(name: str, weight: QuantWeight, shard: Shard, what: str) -> CheckpointError:
    return CheckpointError(
        f"Tensor {name!r} of shape {list(weight.shape)} cannot be divided among {shard.size} "
        f"ranks, since it has {what}; choose a smaller tensor_parallel_size."
    )
