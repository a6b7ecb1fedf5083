"""Stored keys and values: the exact rule by which they are encoded, and read back.

This is what every other kernel is measured against, bit by bit: a float32 division (never a product
with the reciprocal), a clamp, one rounding to nearest with ties to even.
"""

import torch
from torch import Tensor

from jackfield.core.api.encoding import KvEncoding

HEADS = -2
"""Where the heads are in `[T, K, H]`; in gathered `[K, L, H]` they are at -3."""


def store(
    x: Tensor, scale_K: Tensor | None, encoding: KvEncoding, heads_axis: int = HEADS
) -> Tensor:
    """What is kept of keys or values, in the dtype of the encoding and the shape of `x`.

    scale_K: float32; None = 1. Magnitudes beyond the limit, infinities too, become the limit. What
    is no number stays so, where the type can say it; in integers it becomes 0.
    """
    scaled = x.float()
    if scale_K is not None:
        scaled = scaled / _spread(scale_K, x.dim(), heads_axis)
    scaled = scaled.clamp(-encoding.limit, encoding.limit)
    if not encoding.dtype.is_floating_point:
        scaled = scaled.round().nan_to_num(nan=0.0)
    return scaled.to(encoding.dtype)


def restore(stored: Tensor, scale_K: Tensor | None, heads_axis: int = HEADS) -> Tensor:
    """Stored keys or values as float32 of the same shape: exact but for the product's rounding."""
    values = stored.float()
    if scale_K is None:
        return values
    return values * _spread(scale_K, stored.dim(), heads_axis)


def _spread(scale_K: Tensor, dimensions: int, heads_axis: int) -> Tensor:
    shape = [1] * dimensions
    shape[heads_axis] = len(scale_K)
    return scale_K.view(torch.Size(shape))
