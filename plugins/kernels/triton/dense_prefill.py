"""Long prompts as dense attention, one sequence after the other, by the device's own library.

Shape suffixes beside those of the contract: S rows of queries, L keys.

The library makes a plan for every shape, which takes long, so there must be few shapes: rows and
keys are multiples of a step. Rows up to the last such position are served here, the others by the
kernel. The first multiple at or before the past's end is where the causal square begins; rows in
front of the first new token are zeros, and are dropped. Keys before the square all rows see whole.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import BatchLimits, KvLayer, KvSpec, SliceExtent
from jackfield.plugins.kernels.triton.configs import Configs
from jackfield.plugins.kernels.triton.cudnn import find
from jackfield.plugins.kernels.triton.dense_call import Attend, Attended, DenseCall
from jackfield.plugins.kernels.triton.gather_kernel import merge


class Split(NamedTuple):
    """rows: tokens of a slice that are served, from its first on. past: positions before them.
    square: where the causal square begins."""

    rows: int
    past: int
    square: int

    @property
    def end(self) -> int:
        return self.past + self.rows


class Limits(NamedTuple):
    """least: new tokens from which the route is taken; 0 = never. step: see above. reach: keys
    that all rows see, of one call at most, which bounds the scratch. scores: of all heads, in
    2^20, from which the route is taken; what a call costs beside them does not depend on them."""

    least: int
    step: int
    reach: int
    scores: int = 0


NEVER = Limits(0, 1, 1)


class DensePrefill:
    """attend: what computes; None = cuDNN's, through torch, if a trial finds it right.
    limits: None = those of the table. notes: why it does not serve, or not in the plainest way."""

    def __init__(self, attend: Attend | None = None, limits: Limits | None = None) -> None:
        self.notes: list[str] = []
        self._attend = attend
        self._limits = limits
        self._configs = Configs("prefill")
        self._bounds: dict[tuple[Any, ...], Limits] = {}
        self._found: dict[tuple[Any, ...], Attend | None] = {}

    def split(
        self,
        extent: SliceExtent,
        heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> Split | None:
        """What of a slice is worth the route; None = nothing. heads: of queries."""
        limits = self._limits_of(head_dim, dtype, device)
        if limits.least == 0 or extent.end - extent.begin < limits.least:
            return None
        square = extent.past // limits.step * limits.step
        rows = extent.length // limits.step * limits.step - extent.past
        # Rows of zeros cost as much as others.
        if rows < limits.least or 4 * rows < 3 * (extent.past + rows - square):
            return None
        if heads * rows * (2 * extent.past + rows) < limits.scores << 21:
            return None
        return Split(rows, extent.past, square)

    def serves(
        self, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> bool:
        """Whether the route works for such heads. The first time, that is tried out."""
        return self._attend_for(heads, kv_heads, head_dim, dtype, device) is not None

    def workspace(self, spec: KvSpec, limits: BatchLimits, device: torch.device) -> int:
        """Bytes of scratch at most: keys and values, and those repeated for each head of queries;
        padded queries, and two results and their sum."""
        bounds = self._limits_of(spec.head_dim, spec.dtype, device)
        if bounds.least == 0:
            return 0
        rows = limits.max_tokens + bounds.step
        keys = 2 * max(bounds.reach, rows) * (spec.num_kv_heads + spec.num_heads)
        queries = rows * spec.num_heads
        halves = (keys + 3 * queries) * spec.head_dim * spec.dtype.itemsize
        return halves + 4 * queries * (spec.head_dim + 3)

    def forward(
        self,
        q_TNH: Tensor,
        layer: KvLayer,
        table_B: Tensor,
        begin: int,
        split: Split,
        out_TNH: Tensor,
    ) -> None:
        """Fills the rows of `split` in `out`; the slice's first token is at `begin`."""
        _, heads, head_dim = q_TNH.shape
        kv_heads = layer.tensors["k"].shape[1]
        attend = self._attend_for(heads, kv_heads, head_dim, q_TNH.dtype, q_TNH.device)
        assert attend is not None, "the plan asked whether this is served"
        limits = self._limits_of(head_dim, q_TNH.dtype, q_TNH.device)
        call = DenseCall(attend, layer, table_B, _square(q_TNH, begin, split))
        out_NSH = out_TNH[begin : begin + split.rows].transpose(0, 1)
        dropped = split.past - split.square
        result = call(split.square, split.end, True)
        for first, end in _ranges(split.square, limits.reach):
            more = call(first, end, False)
            if end == split.square:
                merge(_without(result, dropped), _without(more, dropped), out_NSH)
                return
            both_NSH = torch.empty_like(result[0], dtype=torch.float32)
            result = both_NSH, merge(result, more, both_NSH)
        out_NSH.copy_(result[0][:, dropped:])

    def _limits_of(self, head_dim: int, dtype: torch.dtype, device: torch.device) -> Limits:
        if self._limits is not None:
            return self._limits
        key = head_dim, dtype, device
        if key not in self._bounds:
            self._bounds[key] = self._look_up(head_dim, dtype, device)
        return self._bounds[key]

    def _look_up(self, head_dim: int, dtype: torch.dtype, device: torch.device) -> Limits:
        if device.type != "cuda" or dtype == torch.float32:
            return NEVER
        try:
            config = self._configs.find(f"dense/head_{head_dim}", dtype, device)
        except LookupError:
            self.notes.append(
                f"the table names no dense route for heads of {head_dim}; "
                "long prompts go to the Triton kernel"
            )
            return NEVER
        return Limits(config["LEAST"], config["STEP"], config["REACH"], config["SCORES"])

    def _attend_for(
        self, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> Attend | None:
        if self._attend is not None:
            return self._attend
        key = heads, kv_heads, head_dim, dtype, device
        if key not in self._found:
            self._found[key] = find(heads, kv_heads, head_dim, dtype, device, self.notes)
        return self._found[key]


def _square(q_TNH: Tensor, begin: int, split: Split) -> Tensor:
    """The rows of the causal square, [N, S, H]."""
    rows_TNH = q_TNH[begin : begin + split.rows]
    padding = split.past - split.square
    if padding:
        padded_SNH = q_TNH.new_zeros(padding + split.rows, *q_TNH.shape[1:])
        padded_SNH[padding:] = rows_TNH
        rows_TNH = padded_SNH
    return rows_TNH.transpose(0, 1)


def _ranges(end: int, reach: int) -> Iterator[tuple[int, int]]:
    """[0, end) in ranges of that reach, and a shorter one."""
    for begin in range(0, end, reach):
        yield begin, min(begin + reach, end)


def _without(attended: Attended, rows: int) -> Attended:
    out_NSH, lse_NS = attended
    return out_NSH[:, rows:], lse_NS[:, rows:]
