"""Which part of a weight belongs to a rank."""

from jackfield.core.api.errors import CheckpointError
from jackfield.core.api.model import Shard, Split


def shard_slice(
    name: str,
    shape: tuple[int, ...],
    split: Split,
    shard: Shard,
    part: range | None = None,
) -> tuple[slice, ...]:
    """One slice per axis; part: as of `Weights.take`. Raises CheckpointError that names a tensor
    that does not divide."""
    slices = [slice(0, size) for size in shape]
    if split is Split.NONE or (shard.size == 1 and part is None):
        return tuple(slices)
    axis = split.value
    assert axis < len(shape), f"{name} of shape {shape} has no axis {axis} to divide"
    if part is not None:
        assert 0 <= part.start <= part.stop <= shape[axis], f"{name} of shape {shape} has no {part}"
        slices[axis] = slice(part.start, part.stop)
        return tuple(slices)
    size, rest = divmod(shape[axis], shard.size)
    if rest:
        raise CheckpointError(
            f"Tensor {name!r} of shape {list(shape)} cannot be divided along axis {axis} among "
            f"{shard.size} ranks; choose a tensor_parallel_size that divides {shape[axis]}."
        )
    slices[axis] = slice(shard.rank * size, (shard.rank + 1) * size)
    return tuple(slices)
