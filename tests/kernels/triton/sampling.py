"""What the sampler should do, by its definition, and small tables of block sizes for it.

Vocabularies of tests are small: a block has 128 tokens, so a few hundred fill several programs.
"""

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from jackfield.core.api.kernel import SampleBatch
from jackfield.plugins.kernels.triton.random import gumbel
from jackfield.plugins.kernels.triton.sample import Blocks, Cut, TritonSample

Setting = tuple[float, int, float, float]
WIDTH = 128


class Sizes:
    """A table that has a few blocks for each program, so that small rows have many programs."""

    def __init__(self, tile: int, cut_tile: int) -> None:
        self._tile, self._cut_tile = tile, cut_tile

    def find(self, shape: str, *_: Any) -> Mapping[str, int]:
        if shape == "pick":
            return {"num_warps": 4}
        return {"TILE": self._cut_tile if "cut" in shape else self._tile, "num_warps": 4}


class Recording(TritonSample):
    """Remembers the cut of the last call, and the blocks, of which only what is kept is left."""

    last: Cut
    blocks: Blocks

    def _cut(self, logits_RV: Tensor, batch: SampleBatch, blocks: Blocks) -> Cut:
        self.last, self.blocks = super()._cut(logits_RV, batch, blocks), blocks
        return self.last


def sampler(config: Any, tile: int = 2, cut_tile: int = 2) -> Recording:
    return Recording(config, Sizes(tile, cut_tile))


def settings(rows: list[Setting], seed: int = 0) -> SampleBatch:
    temperature, top_k, top_p, min_p = zip(*rows, strict=True)
    index = torch.arange(len(rows))
    return SampleBatch(
        torch.tensor(temperature),
        torch.tensor(top_k, dtype=torch.int32),
        torch.tensor(top_p),
        torch.tensor(min_p),
        index + seed,
        index * 3,
        not any(temperature),
        any(t > 0 and (k > 0 or p < 1 or m > 0) for t, k, p, m in rows),
    )


def kept(logits: Tensor, setting: Setting) -> Tensor:
    """Which tokens the filters keep, one filter after the other, in float64."""
    temperature, top_k, top_p, min_p = setting
    if temperature == 0:
        return torch.ones_like(logits, dtype=torch.bool)
    p = (logits.double() / temperature).softmax(-1)
    p = torch.where(p < min_p * p.max(), 0, p)
    order = torch.sort(logits.float(), descending=True, stable=True).indices
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    if top_p < 1:
        mass = p[order].cumsum(0) - p[order]
        p[order[1:]] = torch.where(mass[1:] < top_p, p[order[1:]], 0)
    return p > 0


@triton.jit
def noise_kernel(
    seeds: tl.tensor,
    positions: tl.tensor,
    indices: tl.tensor,
    out: tl.tensor,
    STREAM: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    noise = gumbel(tl.load(seeds + at), tl.load(positions + at), tl.load(indices + at), STREAM)
    tl.store(out + at, noise)


def noise(seeds: Tensor, positions: Tensor, indices: Tensor, stream: int) -> Tensor:
    """Of all combinations of (seed, position) and index: float32 [R, N]."""
    shape = (len(seeds), len(indices))
    size = 1 << (shape[0] * shape[1] - 1).bit_length()
    columns = (seeds[:, None], positions[:, None], indices[None])
    padded = [torch.zeros(size, dtype=column.dtype) for column in columns]
    for flat, column in zip(padded, columns, strict=True):
        flat[: shape[0] * shape[1]] = column.expand(shape).flatten()
    out = torch.empty(size)
    noise_kernel[(triton.cdiv(size, 16384),)](*padded, out, stream, min(size, 16384))
    return out[: shape[0] * shape[1]].view(shape)


def drawn(logits_RV: Tensor, batch: SampleBatch) -> Tensor:
    """The tokens, by the definition: the best block, then its best token. -inf is not drawn."""
    rows, vocabulary = logits_RV.shape
    count = -(-vocabulary // WIDTH)
    x = torch.full((rows, count * WIDTH), float("-inf"), dtype=torch.float64)
    x[:, :vocabulary] = logits_RV.double()
    temperature = batch.temperature_R.double()[:, None]
    index = torch.arange(count * WIDTH, dtype=torch.int32)
    of_blocks = noise(batch.seeds_R, batch.positions_R, index[:count], 1)
    total = (x.view(rows, count, WIDTH) / temperature[:, None]).logsumexp(-1)
    best = (total + of_blocks).argmax(-1)
    some = index[(x > float("-inf")).any(0)]
    score = x / temperature
    score[:, some] += noise(batch.seeds_R, batch.positions_R, some, 0)
    score = score.view(rows, count, WIDTH)
    return best * WIDTH + score[torch.arange(rows), best].argmax(-1)
