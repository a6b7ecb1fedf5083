"""What is the same for all layers of a step: its decodes' work, and room for partial results."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import AttnBatch, KvLayer
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.launch import power_of_two
from jackfield.plugins.kernels.triton.shares import Shares, make_shares, room_for
from jackfield.plugins.kernels.triton.support import interpreted, num_processors
from jackfield.plugins.kernels.triton.work_list import (
    Cut,
    WorkList,
    looks_for_groups,
    make_work_list,
)

FEW = 32
"""Decodes up to which a step counts as small: it then needs many short pieces."""
SHORT = 2048
"""Positions up to which that is so; longer rows are enough for shares."""
SMALLEST = 16
"""Rows of a product, and the least that is summed over."""
INTERPRETED = 4
"""Processors that the interpreter is said to have."""


class Geometry(NamedTuple):
    """What the work of a layer depends on beside the batch."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    device: torch.device
    window: int | None

    @property
    def group(self) -> int:
        """Query heads of one key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def width(self) -> int:
        """Entries of a head as the products take them; of pairs of codes they take half."""
        least = 2 * SMALLEST if self.dtype.itemsize == 1 else SMALLEST
        return max(power_of_two(self.head_dim), least)

    @property
    def rows(self) -> int:
        """Rows of the products of one decode."""
        return max(power_of_two(self.group), SMALLEST)


class Plan(NamedTuple):
    """The work of one geometry's layers. config and group_config: of the two launches.

    In configurations CTAS are programs per processor; OVERHEAD, CUT (0 if left out), MERGE and LAST
    are what `Cut` and `decode_kernel` say. REGISTERS: at most so many of a thread, so that CTAS
    programs fit, where products have no more rows than they must. SHARES, LEAST (0 if left out):
    work is cut into equal shares, of so many tiles at least, unless common beginnings are looked
    for.

    partials `[partial, N, H]` and sums `[partial, N]`, float32.
    """

    work: WorkList
    config: Config
    group_config: Config
    processors: int
    partials: Tensor
    sums: Tensor

    @property
    def grouped(self) -> bool:
        """Whether common beginnings are read once for several decodes."""
        return self.work.group_items.numel() > 0


class SharesPlan(NamedTuple):
    """The work of one geometry's layers where each program has a share of all.

    partials `[2 * programs, group, H]` and sums `[2 * programs, group]`, float32.
    """

    shares: Shares
    config: Config
    partials: Tensor
    sums: Tensor


class TritonStep:
    """One prepared batch. A plan is made at the first layer of each geometry, and launches there.

    prefill: what prepared the slices of several tokens, if there are any. latent: plans of latent
    attention, which `latent_decode` makes, by what they depend on.
    """

    def __init__(self, batch: AttnBatch, configs: Configs, prefill: Any) -> None:
        self.batch = batch
        self.prefill = prefill
        self._configs = configs
        self._plans: dict[Geometry, Plan | SharesPlan] = {}
        self.latent: dict[Any, Any] = {}

    def plan(self, geometry: Geometry) -> Plan | SharesPlan:
        plan = self._plans.get(geometry)
        if plan is None:
            plan = self._plans[geometry] = make_plan(self.batch, geometry, self._configs)
        return plan


def geometry_of(q_TNH: Tensor, layer: KvLayer) -> Geometry:
    k = layer.tensors["k"]
    _, kv_heads, block_size, head_dim = k.shape
    return Geometry(
        q_TNH.shape[1], kv_heads, head_dim, block_size, k.dtype, q_TNH.device, layer.window
    )


def make_plan(batch: AttnBatch, geometry: Geometry, configs: Configs) -> Plan | SharesPlan:
    amount = "few" if is_small(batch, geometry.window) else "many"
    find = configs.find
    config = find(f"{amount}_{_class(geometry)}", geometry.dtype, geometry.device)
    if config.get("SHARES", 0) and not looks_for_groups(batch, geometry.window):
        return make_shares_plan(batch, geometry, config)
    group_config = find(f"group_{_class(geometry)}", geometry.dtype, geometry.device)
    processors = num_processors(geometry.device, INTERPRETED)
    work = make_work_list(batch, cut_of(geometry, config, group_config, processors))
    shape = (work.partials, geometry.num_heads, geometry.head_dim)
    partials = torch.empty(shape, dtype=torch.float32, device=geometry.device)
    sums = torch.empty(shape[:2], dtype=torch.float32, device=geometry.device)
    return Plan(work, config, group_config, processors, partials, sums)


def is_small(batch: AttnBatch, window: int | None) -> bool:
    """Whether a step's decodes are too little work for what many or long ones are best done by."""
    read = batch.max_len if window is None else min(batch.max_len, window)
    return batch.num_decodes <= FEW and read <= SHORT


def make_shares_plan(batch: AttnBatch, geometry: Geometry, config: Config) -> SharesPlan:
    programs = num_processors(geometry.device, INTERPRETED) * config["CTAS"]
    tile, device = config["TILE"], geometry.device
    shares = room_for(programs, tile, min(tile, geometry.block_size), device)
    make_shares(batch, geometry.num_kv_heads, geometry.window, shares, config.get("LEAST", 1))
    shape = (2 * programs, geometry.group, geometry.head_dim)
    partials = torch.empty(shape, dtype=torch.float32, device=device)
    sums = torch.empty(shape[:2], dtype=torch.float32, device=device)
    return SharesPlan(shares, config, partials, sums)


def cut_of(geometry: Geometry, config: Config, group_config: Config, processors: int) -> Cut:
    return Cut(
        geometry.num_kv_heads,
        geometry.window,
        processors,
        config["TILE"],
        min(config["TILE"], geometry.block_size),
        config["OVERHEAD"],
        config.get("CUT", 0),
        config["MERGE"],
        group_config["TILE"],
        members_of(geometry, group_config),
    )


def members_of(geometry: Geometry, group_config: Config) -> int:
    """Decodes that read a common beginning together."""
    return max(group_config["ROWS"] // geometry.group, 1)


def exact(dtype: torch.dtype) -> bool:
    """Whether products are those of float32, as all that the interpreter computes must be."""
    return dtype is torch.float32 or interpreted()


def _class(geometry: Geometry) -> int:
    return max(geometry.width, 64)
