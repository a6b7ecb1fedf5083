"""What the launches of a layer's decodes have in common."""

from typing import Any

import torch
from torch import Tensor

from jackfield.core.api.kernel import KvLayer
from jackfield.plugins.kernels.triton.attention_step import SMALLEST, Geometry, exact
from jackfield.plugins.kernels.triton.configs import Config
from jackfield.plugins.kernels.triton.early import early
from jackfield.plugins.kernels.triton.encode import kind_of
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.support import capability

PER_THREAD = 32
"""Entries of partial results that a thread loads at once."""
MOST_PARTS = 5
"""Pieces that are loaded at once, however few heads they have."""
MERGE_WARPS = 4
MOST_MERGED = 4096
"""Entries of the heads of a group that one program of few warps may merge."""
WARP = 32
"""Threads of a warp."""
LARGE = 8192
"""Entries of the results of a piece from which on the warps of the table could not hold them."""


def options_of(
    q_TNH: Tensor, layer: KvLayer, config: Config, rows: int, *, alone: bool
) -> dict[str, Any]:
    """How a kernel of decodes is compiled, beside its heads. rows: of its products. alone: nothing
    runs beside it, so that it may begin early."""
    return {
        "BLOCK_SIZE": layer.tensors["k"].shape[2],
        "ROWS": rows,
        "TILE": config["TILE"],
        "STAGES": config["num_stages"],
        "KIND": kind_of(layer.encoding),
        "ASSEMBLY": capability(q_TNH.device),
        "SCALED": layer.scales is not None,
        "EXACT": exact(q_TNH.dtype),
        "WINDOWED": layer.window is not None,
        "num_stages": config["num_stages"],
        "maxnreg": config.get("REGISTERS") if rows == SMALLEST else None,
        **early_of(q_TNH.device, alone=alone),
    }


def warps_of(config: Config, geometry: Geometry) -> int:
    """Of a kernel whose products have the rows of one decode."""
    return config["num_warps"] * (2 if geometry.rows * geometry.width > LARGE else 1)


def heads_of(geometry: Geometry) -> dict[str, int]:
    return {
        "KV_HEADS": geometry.num_kv_heads,
        "GROUP": geometry.group,
        "HEAD_DIM": geometry.head_dim,
        "WIDTH": geometry.width,
    }


def merged_of(geometry: Geometry, warps: int) -> dict[str, int]:
    """What `merge_row` reads at once."""
    heads = power_of_two(geometry.group)
    return {"HEADS": heads, "PARTS": parts_at_once(warps, heads * geometry.width)}


def parts_at_once(warps: int, entries: int) -> int:
    """Pieces of so many entries each."""
    return min(max(warps * WARP * PER_THREAD // entries, 1), MOST_PARTS)


def merge_options(geometry: Geometry, *, alone: bool) -> dict[str, Any]:
    """Of a kernel that merges. alone: as above."""
    warps = MERGE_WARPS if merges_few(geometry) else 4 * MERGE_WARPS
    return {
        **heads_of(geometry),
        **merged_of(geometry, warps),
        "num_warps": warps,
        **early_of(geometry.device, alone=alone),
    }


def merges_few(geometry: Geometry) -> bool:
    return power_of_two(geometry.group) * geometry.width <= MOST_MERGED


def early_of(device: torch.device, *, alone: bool) -> dict[str, Any]:
    return early(device) if alone else {"EARLY": False}
