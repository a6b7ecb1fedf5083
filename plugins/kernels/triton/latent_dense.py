"""Long prompts of latent attention by the device's own library.

Rows and ranges of keys are those of the dense route; the keys and values of a range are made of
what is stored when it is attended to. The shape suffixes are those of latent prefills.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import BatchLimits, KvLayer, KvSpec
from jackfield.core.api.latent import LatentHeads, LatentSizes
from jackfield.plugins.kernels.triton.dense_call import Attend
from jackfield.plugins.kernels.triton.dense_prefill import (
    DensePrefill,
    DenseSlice,
    Limits,
    Split,
    fill,
    ranges_of,
    square,
)
from jackfield.plugins.kernels.triton.gather import PARTS, Attended
from jackfield.plugins.kernels.triton.latent_gather import Spots, gather_latents
from jackfield.plugins.kernels.triton.latent_plan import Range
from jackfield.plugins.kernels.triton.prefill import upload
from jackfield.plugins.kernels.triton.prefill_plan import Slice

Ends = tuple[int, int]
"""Of a range of positions."""


class LatentDenseSlice(NamedTuple):
    """What is the same for all layers of a step. spots: where each range of keys is stored."""

    one: DenseSlice
    tables_SB: Tensor
    spots: dict[Ends, Spots]


class LatentCall(NamedTuple):
    """Dense attention of rows of a sequence to positions whose keys and values are made here."""

    place: LatentDenseSlice
    layer: KvLayer
    heads: LatentHeads
    q_NSQ: Tensor

    def __call__(self, begin: int, end: int, causal: bool) -> Attended:
        """To the keys of positions [begin, end)."""
        merged_NXR, value = self.heads.merged_NXR, self.heads.values_NRV.shape[2]
        count, width, rank = merged_NXR.shape
        stored_LH = gather_latents(
            self.layer, self.place.tables_SB, self.place.spots[begin, end], rank, self.q_NSQ
        )
        # Each head's value, and its key in one piece: the rotated part comes behind what is made.
        shape = (end - begin, count, width + stored_LH.shape[1] - rank)
        room_NLY = stored_LH.new_empty(shape).transpose(0, 1)
        latent_NLR = stored_LH[:, :rank].expand(count, -1, -1)
        torch.bmm(latent_NLR, merged_NXR.transpose(1, 2), out=room_NLY[..., :width])
        room_NLY[..., width:] = stored_LH[:, rank:]
        k_NLQ, v_NLV = room_NLY[..., value:], room_NLY[..., :value]
        return self.place.one.attend(self.q_NSQ, k_NLQ, v_NLV, causal, self.layer.scale)


class LatentDense:
    """attend, limits: as for `DensePrefill`."""

    def __init__(self, attend: Attend | None = None, limits: Limits | None = None) -> None:
        self._attend = attend
        self._limits = limits
        self._routes: dict[LatentSizes, DensePrefill] = {}

    @property
    def notes(self) -> list[str]:
        """Why the route does not serve, or not in the plainest way; grows with trials."""
        return [note for route in self._routes.values() for note in route.notes]

    def alignment(self, spec: KvSpec, device: torch.device) -> int:
        """Of positions at which long prompts had better be cut."""
        assert spec.latent is not None
        return self._route(spec.latent).alignment(_of_heads(spec), device)

    def workspace(self, spec: KvSpec, limits: BatchLimits, device: torch.device) -> int:
        """Bytes of scratch at most: what is stored of a range, keys and values made of it; padded
        queries; results, and what was combined of earlier ones."""
        sizes, heads = spec.latent, spec.num_heads
        assert sizes is not None
        bounds = self._route(sizes).limits_of(sizes.query, spec.dtype, device)
        if bounds.least == 0:
            return 0
        length = limits.max_blocks * spec.block_size
        rows = min(limits.max_tokens + bounds.step, length)
        keys = max(min(bounds.reach, length), rows)
        # Values may have to be as long as keys.
        made = keys * (sizes.stored + heads * (sizes.value + 2 * sizes.query))
        ranges = len(list(ranges_of(length - 1, bounds)))
        results = rows * heads * min(ranges + 1, PARTS)
        kept = 2 * rows * heads if ranges >= PARTS else 0
        halves = made + rows * heads * sizes.query + results * sizes.query
        return halves * spec.dtype.itemsize + 4 * results + 4 * kept * (sizes.value + 1)

    def split(
        self, one: Slice, sizes: LatentSizes, heads: int, dtype: torch.dtype, device: torch.device
    ) -> Split | None:
        """What of a slice the route serves; None = nothing."""
        route = self._route(sizes)
        split = route.split(one.extent, heads, sizes.query, dtype, device)
        if split is None or not route.serves(heads, heads, sizes.query, dtype, device):
            return None
        return split

    def prepare(
        self,
        split: Split,
        one: Slice,
        tables_SB: Tensor,
        sizes: LatentSizes,
        heads: int,
        dtype: torch.dtype,
    ) -> LatentDenseSlice:
        """Once per step, of what `split` gave."""
        dense = self._route(sizes).prepare(
            split, one.extent.begin, tables_SB[one.row], heads, heads, sizes.query, dtype
        )
        ends = [(split.square, split.end), *dense.ranges]
        padding = (0,) * 4
        rows = [(*Range(one.row, begin, end - begin, 0), *padding) for begin, end in ends]
        table = upload(rows, tables_SB.device)
        spots = {
            (begin, end): Spots(table[index : index + 1], end - begin, end - begin)
            for index, (begin, end) in enumerate(ends)
        }
        return LatentDenseSlice(dense, tables_SB, spots)

    def forward(
        self, q_TNQ: Tensor, heads: LatentHeads, layer: KvLayer, one: LatentDenseSlice, out: Tensor
    ) -> None:
        """Fills the rows of the split in `out`, `[T, N, V]`."""
        call = LatentCall(one, layer, heads, square(q_TNQ, one.one))
        fill(call.__call__, one.one, out)

    def _route(self, sizes: LatentSizes) -> DensePrefill:
        if sizes not in self._routes:
            self._routes[sizes] = DensePrefill(
                self._attend, self._limits, "latent_prefill", sizes.value
            )
        return self._routes[sizes]


def _of_heads(spec: KvSpec) -> KvSpec:
    assert spec.latent is not None
    return spec._replace(head_dim=spec.latent.query)
