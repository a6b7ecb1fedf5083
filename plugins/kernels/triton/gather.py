"""Launches of what surrounds dense attention of one sequence."""

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.encode import as_codes, kind_of
from jackfield.plugins.kernels.triton.gather_kernel import combine_kernel, gather_kernel

TILE = 32
"""Positions or tokens of a program."""
PARTS = 4
"""Partial results that are combined at once."""
ALIGNMENT = 16
"""Bytes; where rows of results begin."""

Attended = tuple[Tensor, Tensor]
"""The result [N, S, H], and the logarithm of the sum of the weights [N, S] (float32)."""


def gather(
    layer: KvLayer, table_B: Tensor, begin: int, end: int, room: Tensor, native: bool
) -> None:
    """Keys and values of positions [begin, end) to `room`, `[2, K, L, H]`, in its type.

    native: whether the device knows e4m3.
    """
    k, v = as_codes(layer.tensors["k"]), as_codes(layer.tensors["v"])
    _, kv_heads, page, head_dim = k.shape
    scales = layer.scales
    gather_kernel[(triton.cdiv(end - begin, TILE), kv_heads, 2)](
        k,
        v,
        room,
        table_B,
        table_B if scales is None else scales.k_K,
        table_B if scales is None else scales.v_K,
        begin,
        end,
        *k.stride()[:2],
        *room.stride()[:2],
        HEAD_DIM=head_dim,
        BLOCK_H=triton.next_power_of_2(head_dim),
        PAGE=page,
        BLOCK_L=TILE,
        KIND=kind_of(layer.encoding),
        NATIVE=native,
        SCALED=scales is not None,
        num_warps=4,
    )


def combine(parts: Sequence[Attended], skipped: int, out_TNH: Tensor) -> None:
    """Attention to the keys of all parts, in one pass. The first rows of the parts are left out."""
    _launch(parts, skipped, out_TNH.transpose(0, 1), None)


def combine_kept(parts: Sequence[Attended]) -> Attended:
    """The same in float32, as a part that is combined with others."""
    first_NSH, first_NS = parts[0]
    out_NSH = torch.empty_like(first_NSH, dtype=torch.float32)
    lse_NS = torch.empty_like(first_NS)
    _launch(parts, 0, out_NSH, lse_NS)
    return out_NSH, lse_NS


def _launch(
    parts: Sequence[Attended], skipped: int, out_NSH: Tensor, lse_NS: Tensor | None
) -> None:
    assert 0 < len(parts) <= PARTS and _are_alike(parts) and _is_aligned(out_NSH)
    heads, tokens, head_dim = out_NSH.shape
    first_NSH, first_NS = parts[0]
    slots = [*parts, *[parts[0]] * (PARTS - len(parts))]
    combine_kernel[(heads, triton.cdiv(tokens, TILE))](
        *(part_NSH for part_NSH, _ in slots),
        *(part_NS for _, part_NS in slots),
        out_NSH,
        first_NS if lse_NS is None else lse_NS,
        len(parts),
        skipped,
        tokens,
        *first_NSH.stride()[:2],
        *first_NS.stride(),
        *out_NSH.stride()[:2],
        HEAD_DIM=head_dim,
        BLOCK_H=triton.next_power_of_2(head_dim),
        BLOCK_S=TILE,
        KEPT=lse_NS is not None,
        num_warps=4,
    )


def _are_alike(parts: Sequence[Attended]) -> bool:
    (first_NSH, first_NS), *others = parts
    return _is_aligned(first_NSH) and all(
        part_NSH.stride() == first_NSH.stride()
        and part_NS.stride() == first_NS.stride()
        and _is_aligned(part_NSH)
        for part_NSH, part_NS in others
    )


def _is_aligned(x_NSH: Tensor) -> bool:
    head, token, entry = x_NSH.stride()
    size = x_NSH.element_size()
    places = x_NSH.data_ptr(), head * size, token * size
    return entry == 1 and not any(place % ALIGNMENT for place in places)
