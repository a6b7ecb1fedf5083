"""Long prompts as dense attention, one sequence after the other, by the device's own library.

Shape suffixes beside those of the contract: S rows of queries, L keys.

The library makes a plan for every shape, which takes long, so there must be few shapes: rows and
keys are multiples of a step. Rows up to the last such position are served here, the others by the
kernel. The last multiple up to the past's end is where the causal square begins; rows in front of
the first new token are those of other slices, or zeros, and what they give is dropped. Keys before
the square all rows see whole, in ranges: as few as there can be that are multiples of a larger
unit, and one for what is left.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import BatchLimits, KvLayer, KvSpec, SliceExtent
from jackfield.plugins.kernels.triton.configs import Config, Configs
from jackfield.plugins.kernels.triton.cudnn import find
from jackfield.plugins.kernels.triton.dense_call import Attend, Call, DenseCall
from jackfield.plugins.kernels.triton.encode import knows_e4m3
from jackfield.plugins.kernels.triton.gather import PARTS, combine, combine_kept


class Split(NamedTuple):
    """rows: tokens of a slice that are served, from its first on. past: positions before them.
    square: where the causal square begins."""

    rows: int
    past: int
    square: int

    @property
    def end(self) -> int:
        return self.past + self.rows

    @property
    def padding(self) -> int:
        """Rows in front of the first new token."""
        return self.past - self.square


class Limits(NamedTuple):
    """least: new tokens from which the route is taken; 0 = never. step, unit: see above. reach:
    keys that all rows see, of one call at most, which bounds the scratch; a multiple of the unit.
    scores: of all heads, in 2^20, from which the route is taken; what a call costs beside them
    does not depend on them."""

    least: int
    step: int
    unit: int
    reach: int
    scores: int = 0

    @staticmethod
    def of(config: Config) -> "Limits":
        """As the table has them."""
        names = ("LEAST", "STEP", "UNIT", "REACH", "SCORES")
        return Limits(*(config[name] for name in names))


NEVER = Limits(0, 1, 1, 1)


class DenseSlice(NamedTuple):
    """What is the same for all layers of a step. table_B: the sequence's blocks. begin: the place
    of the slice's first token. ranges: of keys that all rows see. native: as for `gather`."""

    attend: Attend
    table_B: Tensor
    begin: int
    split: Split
    ranges: tuple[tuple[int, int], ...]
    native: bool


class DensePrefill:
    """attend: what computes; None = cuDNN's, through torch, if a trial finds it right.
    limits: None = those of the table. value_dim: of values that lie beside keys; None = as keys,
    apart from them. notes: why it does not serve, or not in the plainest way."""

    def __init__(
        self,
        attend: Attend | None = None,
        limits: Limits | None = None,
        table: str = "prefill",
        value_dim: int | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._attend = attend
        self._limits = limits
        self._value_dim = value_dim
        self._configs = Configs(table)
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
        limits = self.limits_of(head_dim, dtype, device)
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

    def alignment(self, spec: KvSpec, device: torch.device) -> int:
        """Slices that end at multiples of it leave nothing to the kernel, and those that begin
        there have no rows of zeros; 1 = the route is not taken."""
        bounds = self.limits_of(spec.head_dim, spec.dtype, device)
        return bounds.step if bounds.least and spec.window is None else 1

    def workspace(self, spec: KvSpec, limits: BatchLimits, device: torch.device) -> int:
        """Bytes of scratch at most: keys and values, and those repeated for each head of queries;
        padded queries; results, and what was combined of earlier ones."""
        bounds = self.limits_of(spec.head_dim, spec.dtype, device)
        if bounds.least == 0:
            return 0
        length = limits.max_blocks * spec.block_size
        rows = min(limits.max_tokens + bounds.step, length)
        keys = 2 * max(min(bounds.reach, length), rows) * (spec.num_kv_heads + spec.num_heads)
        wide = rows * (spec.num_heads + 2 * spec.num_kv_heads)
        ranges = len(list(ranges_of(length - 1, bounds)))
        results = rows * spec.num_heads * min(ranges + 1, PARTS)
        kept = 2 * rows * spec.num_heads if ranges >= PARTS else 0
        halves = (keys + wide + results) * spec.head_dim * spec.dtype.itemsize
        return halves + 4 * results + 4 * kept * (spec.head_dim + 1)

    def prepare(
        self,
        split: Split,
        begin: int,
        table_B: Tensor,
        heads: int,
        kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
    ) -> DenseSlice:
        """Once per step and geometry, of what `split` gave. begin: where the slice's tokens do."""
        device = table_B.device
        attend = self._attend_for(heads, kv_heads, head_dim, dtype, device)
        assert attend is not None, "the plan asked whether this is served"
        ranges = tuple(ranges_of(split.square, self.limits_of(head_dim, dtype, device)))
        return DenseSlice(attend, table_B, begin, split, ranges, knows_e4m3(device))

    def forward(self, q_TNH: Tensor, layer: KvLayer, one: DenseSlice, out_TNH: Tensor) -> None:
        """Fills the rows of the split in `out`."""
        call = DenseCall(one.attend, layer, one.table_B, one.native, square(q_TNH, one))
        fill(call.__call__, one, out_TNH)

    def limits_of(self, head_dim: int, dtype: torch.dtype, device: torch.device) -> Limits:
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
        return Limits.of(config)

    def _attend_for(
        self, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> Attend | None:
        if self._attend is not None:
            return self._attend
        key = heads, kv_heads, head_dim, dtype, device
        if key not in self._found:
            self._found[key] = find(
                heads, kv_heads, head_dim, dtype, device, self.notes, value_dim=self._value_dim
            )
        return self._found[key]


def fill(call: Call, one: DenseSlice, out_TNH: Tensor) -> None:
    """The rows of the split in `out`. call: what attends, for the rows of the square."""
    split = one.split
    parts = [call(split.square, split.end, True)]
    for first, end in one.ranges:
        if len(parts) == PARTS:
            parts = [combine_kept(parts)]
        parts.append(call(first, end, False))
    combine(parts, split.padding, out_TNH[one.begin : one.begin + split.rows])


def square(q_TNH: Tensor, one: DenseSlice) -> Tensor:
    """The rows of the causal square, [N, S, H]. Their strides are always those of the queries,
    since the library makes a plan for strides, too."""
    split, begin = one.split, one.begin
    padding, end = split.padding, begin + split.rows
    if padding <= begin:
        # No row has a part in what another one gives, whatever other slices' rows hold.
        return q_TNH[begin - padding : end].transpose(0, 1)
    _, heads, head_dim = q_TNH.shape
    shape = (padding + split.rows, heads, head_dim)
    padded_SNH = torch.empty_strided(shape, q_TNH.stride(), dtype=q_TNH.dtype, device=q_TNH.device)
    padded_SNH[:padding].zero_()
    padded_SNH[padding:] = q_TNH[begin:end]
    return padded_SNH.transpose(0, 1)


def ranges_of(end: int, limits: Limits) -> Iterator[tuple[int, int]]:
    """[0, end) in ranges that are multiples of the unit, up to the reach, and a shorter one."""
    begin = 0
    while begin < end:
        size = min((end - begin) // limits.unit * limits.unit, limits.reach) or end - begin
        yield begin, begin + size
        begin += size
