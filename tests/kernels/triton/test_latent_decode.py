"""Decodes of latent attention against dense float64 attention, mostly cut into short shares."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import AttnBatch, BatchLimits, KvLayer, KvSpec, SliceExtent
from jackfield.core.api.latent import LatentSizes
from jackfield.plugins.cache.fp8 import Fp8
from jackfield.plugins.kernels.torch_ops.encoding import restore, store
from jackfield.plugins.kernels.triton.attention_step import INTERPRETED, TritonStep
from jackfield.plugins.kernels.triton.configs import Entry
from jackfield.plugins.kernels.triton.latent_decode import (
    LATENT,
    LatentGeometry,
    LatentShares,
    latent_configs,
    latent_decode,
    latent_scratch,
    merged_heads,
)
from jackfield.plugins.kernels.triton.support import num_processors

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SMALL = {"TILE": 16, "HEADS": 16, "CTAS": 2, "LEAST": 1, "num_warps": 4, "num_stages": 2}
WHOLE = 1000
"""Tiles of a share, so that no row is cut."""
EDGES = [1, 15, 16, 17, 0, 47, 49]
SPARE = 3
"""Blocks that nobody has."""


class Fixed:
    """A table in which all shapes have the same entry."""

    def __init__(self, **changes: int) -> None:
        self.config = {**SMALL, **changes}

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> dict[str, int]:
        return self.config


@dataclass
class Scene:
    """Sequences in scattered blocks of a pool that is NaN wherever nothing is stored.

    more: slices behind the decodes, which are none.
    """

    lens: list[int]
    heads: int = 4
    sizes: tuple[int, int] = (32, 16)
    dtype: torch.dtype = torch.float32
    block_size: int = 16
    garbage: int = -1
    encoding: KvEncoding | None = None
    scale_of_all: float | None = None
    more: int = 0
    generator: torch.Generator = field(
        default_factory=lambda: torch.Generator("cpu").manual_seed(1)
    )

    def __post_init__(self) -> None:
        self.rank, rotated = self.sizes
        self.entries = self.rank + rotated
        self.counts = [-(-length // self.block_size) for length in self.lens]
        self.q = self._random(len(self.lens) + self.more, self.heads, self.entries)
        self.tables, pool = self._stored()
        self.step = TritonStep(self._batch(), None, None)  # type: ignore[arg-type]
        scales = None
        if self.scale_of_all is not None:
            scales = KvScales(torch.tensor([self.scale_of_all]), torch.tensor([float("nan")]))
        self.layer = KvLayer({LATENT: pool}, self.entries**-0.5, None, scales, self.encoding)

    def _random(self, *shape: int) -> Tensor:
        with torch.device("cpu"):
            drawn = torch.randn(shape, generator=self.generator).to(self.dtype)
        return drawn.to(torch.empty(0).device)

    def _stored(self) -> tuple[Tensor, Tensor]:
        blocks = sum(self.counts) + SPARE
        free = torch.randperm(blocks, generator=self.generator, device="cpu").tolist()
        tables = torch.full((len(self.lens), max(self.counts) + 2), self.garbage, device="cpu")
        stored_dtype = self.dtype if self.encoding is None else self.encoding.dtype
        shape = (blocks, 1, self.block_size, self.entries)
        nothing = 77.0 if stored_dtype is torch.int8 else float("nan")
        pool = torch.full(shape, nothing).to(stored_dtype)
        self.vectors = []
        for row, length in enumerate(self.lens):
            vectors = self._random(length, self.entries)
            if self.encoding is not None:
                vectors = self._encoded(vectors)
            for index in range(self.counts[row]):
                tables[row, index] = block = free.pop()
                part = vectors[index * self.block_size : (index + 1) * self.block_size]
                pool[block, 0, : len(part)] = part
            self.vectors.append(self._restored(vectors))
        return tables.to(torch.int32).to(pool.device), pool

    def _encoded(self, vectors: Tensor) -> Tensor:
        assert self.encoding is not None
        return store(vectors[:, None], self._scale(), self.encoding)[:, 0]

    def _restored(self, vectors: Tensor) -> Tensor:
        if self.encoding is None:
            return vectors.double()
        return restore(vectors[:, None], self._scale())[:, 0].double()

    def _scale(self) -> Tensor | None:
        return None if self.scale_of_all is None else torch.tensor([self.scale_of_all])

    def _batch(self) -> AttnBatch:
        rows = len(self.lens) + self.more
        lens = torch.tensor([*self.lens, *[5] * self.more], dtype=torch.int32)
        slots = torch.full((rows,), -1)
        starts = torch.arange(rows + 1, dtype=torch.int32)
        prompts = tuple(SliceExtent(row, row + 1, 5) for row in range(len(self.lens), rows))
        tables = self.tables
        if self.more:
            tables = torch.cat([tables, torch.full((self.more, tables.shape[1]), self.garbage)])
            tables = tables.to(torch.int32)
        return AttnBatch(starts, lens, tables, slots, len(self.lens), 1, max(self.lens), prompts)

    def room(self) -> Tensor:
        shape = (len(self.q), self.heads, self.rank)
        return torch.full(shape, float("nan"), dtype=self.dtype)

    def run(self, **changes: int) -> Tensor:
        out = self.room()
        latent_decode(self.q, self.layer, self.step, out, Fixed(**changes))  # type: ignore[arg-type]
        return out[: len(self.lens)]

    @property
    def plan(self) -> LatentShares:
        (plan,) = self.step.latent.values()
        return plan  # type: ignore[no-any-return]

    def reference(self) -> Tensor:
        rows = []
        for row, vectors in enumerate(self.vectors):
            scores = self.q[row].double() @ vectors.T * self.layer.scale
            rows.append(scores.softmax(-1) @ vectors[:, : self.rank])
        return torch.stack(rows)

    def check(self, out: Tensor) -> None:
        tolerance = TOLERANCES[self.dtype]
        torch.testing.assert_close(out.double(), self.reference(), atol=tolerance, rtol=tolerance)


@pytest.mark.few_combinations
@pytest.mark.parametrize("ctas", [1, 3, 16])
@pytest.mark.parametrize("least", [1, WHOLE])
def test_edge_lengths(dtype: torch.dtype, ctas: int, least: int) -> None:
    scene = Scene(EDGES, dtype=dtype)
    scene.check(scene.run(CTAS=ctas, LEAST=least))


@pytest.mark.few_combinations
@pytest.mark.parametrize("tile", [16, 32])
@pytest.mark.parametrize(("heads", "most"), [(16, 16), (128, 64), (128, 32)])
def test_sizes_of_deepseek(dtype: torch.dtype, heads: int, most: int, tile: int) -> None:
    scene = Scene([40, 0, 33], heads, (512, 64), dtype)
    scene.check(scene.run(HEADS=most, TILE=tile, num_warps=8))


@pytest.mark.parametrize(
    ("heads", "most", "group"),
    [(1, 16, 1), (4, 16, 4), (16, 16, 16), (20, 16, 10), (7, 4, 1), (40, 16, 10), (64, 64, 64),
     (96, 64, 48), (128, 64, 64)],
)  # fmt: skip
def test_heads_are_divided_evenly(heads: int, most: int, group: int) -> None:
    scene = Scene([33, 0, 50], heads)
    scene.check(scene.run(HEADS=most))
    assert scene.plan.group == group
    assert group % merged_heads(group) == 0


@pytest.mark.few_combinations
@pytest.mark.parametrize("sizes", [(16, 16), (48, 16), (32, 48), (80, 64)])
def test_sizes_that_are_no_powers_of_two(dtype: torch.dtype, sizes: tuple[int, int]) -> None:
    scene = Scene([33, 1], 4, sizes, dtype)
    scene.check(scene.run())


@pytest.mark.few_combinations
@pytest.mark.parametrize("block_size", [8, 16, 64])
@pytest.mark.parametrize("tile", [16, 32])
def test_blocks_smaller_and_larger_than_tiles(block_size: int, tile: int) -> None:
    scene = Scene([1, 31, 130], block_size=block_size)
    scene.check(scene.run(TILE=tile, CTAS=1))


@pytest.mark.parametrize("garbage", [-1, 2**31 - 1, -(2**31)])
def test_table_entries_past_the_length_are_never_read(garbage: int) -> None:
    scene = Scene([17, 1, 50, 0], garbage=garbage)
    scene.check(scene.run())


@pytest.mark.parametrize("least", [1, WHOLE])
def test_rows_of_one_program_are_not_merged(least: int) -> None:
    scene = Scene([40, 100, 3])
    scene.run(LEAST=least)
    scene.plan.partials.fill_(7.5)
    scene.check(scene.run(LEAST=least))
    assert bool((scene.plan.partials == 7.5).all()) == (least == WHOLE)


def test_a_row_of_many_shares() -> None:
    """More partial results than are merged at once, and beside them rows that are whole."""
    scene = Scene([3, 500, 9], 8, (64, 16))
    scene.check(scene.run(CTAS=8))


@pytest.mark.few_combinations
@pytest.mark.parametrize("scale", [None, 0.021])
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_encodings(dtype: torch.dtype, name: str, scale: float | None) -> None:
    """Against dense attention to what the reference reads back."""
    encoding = Fp8(Fp8.Config(format=name)).encode(None)
    sizes = (32, 16) if name == "int8" else (48, 32)
    scene = Scene([40, 0, 21], 4, sizes, dtype, encoding=encoding, scale_of_all=scale)
    scene.check(scene.run())


def test_encodings_of_the_sizes_of_deepseek() -> None:
    encoding = Fp8(Fp8.Config(format="e4m3")).encode(None)
    scene = Scene([40, 33], 64, (512, 64), encoding=encoding, scale_of_all=0.02)
    scene.check(scene.run(HEADS=32, num_warps=8))


@pytest.mark.parametrize("size", [1e5, 0.0])
def test_queries_that_are_no_float16(device: torch.device, size: float) -> None:
    if device.type == "cpu":
        pytest.skip("the interpreter gets bfloat16 wrong")
    encoding = Fp8(Fp8.Config(format="e4m3")).encode(None)
    scene = Scene([40, 33], dtype=torch.bfloat16, encoding=encoding)
    scene.q *= size
    scene.layer = scene.layer._replace(scale=scene.layer.scale / max(size, 1))
    scene.check(scene.run())


@pytest.mark.few_combinations
@pytest.mark.parametrize("tile", [16, 32])
@pytest.mark.parametrize("name", [None, "e4m3"])
def test_blocks_beyond_32_bits(name: str | None, tile: int) -> None:
    """A stride between blocks that is larger than the pool: what wraps around reads elsewhere."""
    encoding = name and Fp8(Fp8.Config(format=name)).encode(None)
    scene = Scene([40, 33], encoding=encoding or None)
    # Of bytes, two are taken at once.
    stride = 2**31 // 5 * (2 if name else 1)
    far = spread(scene.layer.tensors[LATENT], stride - stride % 16)
    scene.layer = scene.layer._replace(tensors={LATENT: far})
    scene.check(scene.run(TILE=tile))


def spread(x: Tensor, stride: int) -> Tensor:
    """The same blocks, far apart; what lies between is never touched, so it costs no memory."""
    size = stride * (len(x) - 1) + x[0].numel()
    room = torch.empty(size, dtype=x.dtype).as_strided(x.shape, (stride, *x.stride()[1:]))
    return room.copy_(x)


def test_heads_and_tokens_of_queries_may_lie_anywhere() -> None:
    scene = Scene([40, 33, 0])
    wanted = scene.q.clone()
    scene.q = torch.full((7, 3, scene.entries + 8), float("nan"))[1:5, :, 4:-4].transpose(0, 1)
    scene.q.copy_(wanted)
    scene.check(scene.run())


def test_the_output_may_have_other_things_between_tokens() -> None:
    scene = Scene([40, 33, 0])
    room = torch.full((3, 7, 32), float("nan"))
    latent_decode(scene.q, scene.layer, scene.step, room[:, 2:6], Fixed())  # type: ignore[arg-type]
    scene.check(room[:, 2:6])
    assert room[:, :2].isnan().all() and room[:, 6:].isnan().all()


def test_slices_behind_the_decodes_are_left_alone() -> None:
    scene = Scene([40, 33], more=2)
    out = scene.room()
    whole = Fixed(LEAST=WHOLE)
    latent_decode(scene.q, scene.layer, scene.step, out, whole)  # type: ignore[arg-type]
    scene.check(out[:2])
    assert out[2:].isnan().all()


def test_a_step_again_with_other_content() -> None:
    """As a replayed graph does: the same tensors, other lengths, tables, queries and vectors."""
    held, other = Scene([65, 1, 9, 70]), Scene([3, 130, 0, 64])
    held.run()
    width = max(held.tables.shape[1], other.tables.shape[1])
    tables = torch.full((4, width), -1, dtype=torch.int32)
    tables[:, : held.tables.shape[1]] = held.tables
    batch = held.step.batch._replace(block_tables_SB=tables, max_len=130)
    for scene in (held, other):
        tables[:, : scene.tables.shape[1]] = scene.tables
        batch.lens_S.copy_(scene.step.batch.lens_S)
        held.q.copy_(scene.q)
        step = TritonStep(batch, None, None)  # type: ignore[arg-type]
        for _ in range(2):  # the next layer finds the step as the first one did
            out = held.room()
            latent_decode(held.q, scene.layer, step, out, Fixed())  # type: ignore[arg-type]
            scene.check(out)


def test_layers_of_different_shapes_have_plans_of_their_own() -> None:
    first, second = Scene([40, 33]), Scene([40, 33], 8, (48, 16))
    first.check(first.run())
    first.step.batch, second.step = second.step.batch, first.step
    second.check(second.run())
    assert len(first.step.latent) == 2


@pytest.mark.few_combinations
@pytest.mark.parametrize("heads", [1, 16, 40, 128])
def test_the_shipped_table_serves(dtype: torch.dtype, heads: int) -> None:
    scene = Scene([20, 1], heads, (512, 64), dtype)
    out = scene.room()
    latent_decode(scene.q, scene.layer, scene.step, out)
    scene.check(out)


@pytest.mark.parametrize("heads", [1, 16, 128])
def test_scratch_holds_what_any_entry_of_the_table_takes(device: Any, heads: int) -> None:
    def size(entry: Entry) -> int:
        return entry.config["CTAS"] * min(entry.config["HEADS"], heads)

    scene = Scene([20, 1], heads, (512, 64), torch.float16)
    scene.check(scene.run(**max(latent_configs().entries(), key=size).config))
    held = (scene.plan.partials, scene.plan.sums, scene.plan.shares.table)
    spec = KvSpec(heads, 1, 576, torch.float16, 16, latent=LatentSizes(512, 64, 128, 128))
    most = latent_scratch(spec, BatchLimits(64, 8, 100), num_processors(device, INTERPRETED))
    assert sum(x.numel() * x.itemsize for x in held) <= most


@pytest.mark.few_combinations
@pytest.mark.parametrize("heads", [1, 16, 17, 32, 48, 128])
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32, torch.int8, torch.float8_e5m2])
def test_the_shipped_table_has_all_shapes(heads: int, stored: torch.dtype, device: Any) -> None:
    geometry = LatentGeometry(heads, 512, 64, 16, stored, device, stored.itemsize == 1)
    config = latent_configs().find(geometry.shape, stored, device)
    assert heads % geometry.group(config) == 0
