"""Prompts of latent attention against dense float64 attention to each head's keys and values."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import (
    AttnBatch,
    BatchLimits,
    KvLayer,
    KvLayout,
    KvSpec,
    KvTensor,
    SliceExtent,
)
from jackfield.core.api.latent import LatentHeads, LatentSizes
from jackfield.plugins.kernels.torch_ops.attention import TorchAttention
from jackfield.plugins.kernels.torch_ops.encoding import restore, store
from jackfield.plugins.kernels.triton.attention import TritonAttention
from jackfield.plugins.kernels.triton.cudnn import padded, reference, trial
from jackfield.plugins.kernels.triton.dense_prefill import NEVER, Limits
from jackfield.plugins.kernels.triton.latent_dense import LatentDense
from jackfield.plugins.kernels.triton.latent_plan import (
    LONG,
    MOST_ABSORBED,
    Tiling,
    absorbed,
    make_pass,
)
from jackfield.plugins.kernels.triton.latent_prefill import ROOM, LatentPrefill
from jackfield.plugins.kernels.triton.prefill import PrefillStep
from jackfield.plugins.kernels.triton.prefill_plan import Slice

# The interpreter runs loops over bounds that the device knows.
pytestmark = [
    pytest.mark.few_combinations,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]

Make = Callable[..., Any]
CPU = torch.device("cpu")
SIZES = LatentSizes(rank=32, rotated=16, plain=32, value=16)
LARGE = LatentSizes(rank=512, rotated=64, plain=128, value=128)
E4M3 = KvEncoding("e4m3", torch.float8_e4m3fn, 448.0)
INT8 = KvEncoding("int8", torch.int8, 127.0)
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


@pytest.fixture
def on_device() -> None:
    """Scenes are made on the host."""


@dataclass
class Latent:
    """A prefill with a pool around it, for scenes that live on the host."""

    prefill: LatentPrefill
    device: torch.device
    heads: LatentHeads

    def layout(self, spec: KvSpec) -> KvLayout:
        dtype = spec.dtype if spec.encoding is None else spec.encoding.dtype
        return KvLayout((KvTensor("latent", (1, spec.block_size, spec.head_dim), dtype),))

    def prepare(self, batch: AttnBatch) -> AttnBatch:
        return batch

    def write(self, k_TKH: Tensor, v_TKH: Tensor, layer: KvLayer, step: AttnBatch) -> None:
        pool = layer.tensors["latent"]
        if layer.encoding is not None:
            scale = None if layer.scales is None else layer.scales.k_K
            k_TKH, pool = store(k_TKH, scale, layer.encoding), pool.view(torch.uint8)
            k_TKH = k_TKH.view(torch.uint8)
        pool[step.slots_T // pool.shape[2], :, step.slots_T % pool.shape[2]] = k_TKH

    def forward(self, q_TNQ: Tensor, layer: KvLayer, batch: AttnBatch, value: int) -> Tensor:
        moved = batch._replace(block_tables_SB=batch.block_tables_SB.to(self.device))
        tensors = {name: x.to(self.device) for name, x in layer.tensors.items()}
        scales = layer.scales and KvScales(*(x.to(self.device) for x in layer.scales))
        there = layer._replace(tensors=tensors, scales=scales)
        merged_NXR = self.heads.merged_NXR.to(self.device)
        heads, step = LatentHeads.of(merged_NXR, value), PrefillStep(moved)
        q_TNQ = torch.nn.functional.pad(q_TNQ.to(self.device), (0, 0, 0, 3))[:, : q_TNQ.shape[1]]
        shape = (*q_TNQ.shape[:2], value)
        out_TNV = torch.full(shape, float("nan"), dtype=q_TNQ.dtype, device=self.device)
        rank, plain = merged_NXR.shape[2], heads.keys_NPR.shape[1]
        sizes = LatentSizes(rank, q_TNQ.shape[2] - plain, plain, value)
        plan = self.prefill.plan(step, heads, sizes, self.device)
        self.prefill.forward(q_TNQ, heads, there, step, plan, out_TNV)
        for one in plan.absorbed:
            assert out_TNV[one.extent.begin : one.extent.end].isnan().all()
        return out_TNV.to(CPU)


def check(
    make_scene: Make,
    prefill: LatentPrefill,
    device: torch.device,
    lens: list[int],
    counts: list[int],
    *,
    sizes: LatentSizes = SIZES,
    heads: int = 2,
    scales: KvScales | None = None,
    **settings: Any,
) -> None:
    settings = {"block_size": 8, **settings}
    scene = make_scene(lens, counts, heads=(heads, 1), head_dim=sizes.stored, **settings)
    scene.spec = scene.spec._replace(latent=sizes)
    dtype = scene.spec.dtype
    merged_NXR = torch.randn(heads, sizes.value + sizes.plain, sizes.rank) / sizes.rank**0.5
    latent = Latent(prefill, device, LatentHeads.of(merged_NXR.to(dtype), sizes.value))
    layer = scene.layer(latent, scales)
    new = zip(scene.keys, counts, strict=True)
    k_T1H = torch.cat([keys[len(keys) - count :] for keys, count in new])
    latent.write(k_T1H, k_T1H[..., : sizes.rank], layer, scene.batch())
    q_TNQ = torch.randn(len(k_T1H), heads, sizes.query).to(dtype)
    out = latent.forward(q_TNQ, layer, scene.batch(), sizes.value)
    compare(scene, latent.heads, q_TNQ, out, layer)


def compare(scene: Any, heads: LatentHeads, q_TNQ: Tensor, out: Tensor, layer: KvLayer) -> None:
    """Decodes are left alone; all other rows are right."""
    stored = scene.keys
    if layer.encoding is not None:
        scale = layer.scales and layer.scales.k_K
        stored = [restore(store(keys, scale, layer.encoding), scale) for keys in stored]
    exact = LatentHeads.of(heads.merged_NXR.double(), heads.values_NRV.shape[2])
    expanded = [exact.expanded(keys[:, 0].double()) for keys in stored]
    begin, tolerance = scene.batch().num_decodes, TOLERANCES[scene.spec.dtype]
    scale = scene.scale
    scene.spec = scene.spec._replace(num_kv_heads=scene.spec.num_heads)
    assert scene.scale == scale
    scene.q = list(q_TNQ.split(scene.query_lens))
    scene.keys, scene.values = (list(part) for part in zip(*expanded, strict=True))
    assert out[:begin].isnan().all()
    wanted = scene.reference()[begin:]
    torch.testing.assert_close(out[begin:].double(), wanted, atol=tolerance, rtol=tolerance)


def tiled(slots: int = 1, room: int = ROOM) -> LatentPrefill:
    """No slice is long enough for another route; with one slot, tiles are not divided."""
    return LatentPrefill(LatentDense(limits=NEVER), slots, room)


def positions(count: int, heads: int = 2, sizes: LatentSizes = SIZES, itemsize: int = 4) -> int:
    """Room for so many."""
    return count * heads * (sizes.plain + sizes.value) * itemsize


@pytest.mark.parametrize(
    ("lens", "counts"),
    [
        ([2, 15, 16, 17, 66], [2, 15, 16, 17, 66]),
        ([5, 1, 40, 70, 33], [1, 1, 20, 3, 2]),
        ([3, 31, 16], [2, 1, 15]),
        ([200, 9], [130, 2]),
    ],
)
def test_lengths_and_pasts(
    make_scene: Make, device: torch.device, dtype: torch.dtype, lens: list[int], counts: list[int]
) -> None:
    check(make_scene, tiled(), device, lens, counts, dtype=dtype)


@pytest.mark.parametrize("sizes", [
    LatentSizes(16, 16, 16, 48), LatentSizes(48, 32, 80, 16), LatentSizes(64, 64, 128, 128),
], ids=str)  # fmt: skip
def test_sizes(
    make_scene: Make, device: torch.device, dtype: torch.dtype, sizes: LatentSizes
) -> None:
    check(make_scene, tiled(), device, [20, 40], [17, 5], sizes=sizes, dtype=dtype, heads=3)


@pytest.mark.parametrize("most", [16, 24, 40, 100])
def test_long_sequences_are_expanded_in_chunks(
    make_scene: Make, device: torch.device, most: int
) -> None:
    """Of which each goes on from what the last one left."""
    prefill = tiled(room=positions(most))
    check(make_scene, prefill, device, [20, 90, 30, 100], [20, 70, 3, 5])


@pytest.mark.parametrize("most", [None, 700])
def test_few_tiles_are_divided_by_their_keys(
    make_scene: Make, device: torch.device, most: int | None
) -> None:
    room = ROOM if most is None else positions(most, 1)
    check(make_scene, tiled(12, room), device, [1300], [40], heads=1)


def test_chunks_and_parts_in_half_precision(make_scene: Make, device: torch.device) -> None:
    for slots in (1, 64):
        prefill = tiled(slots, positions(600, 1, itemsize=2))
        check(make_scene, prefill, device, [1100], [60], heads=1, dtype=torch.float16)


@pytest.mark.parametrize("encoding", [E4M3, INT8], ids=lambda encoding: encoding.name)
@pytest.mark.parametrize("scaled", [False, True])
def test_encodings(
    make_scene: Make, device: torch.device, encoding: KvEncoding, scaled: bool
) -> None:
    scales = KvScales(torch.tensor([0.02]), torch.tensor([7.0])) if scaled else None
    scale = {"scales": scales, "encoding": encoding}
    check(make_scene, tiled(), device, [40, 30], [20, 30], **scale)
    dense = LatentPrefill(LatentDense(reference, Limits(16, 16, 16, 16)), 1)
    check(make_scene, dense, device, [64, 9], [32, 9], **scale)


class Recorder:
    """Plain attention in the place of the library's; keeps the shapes that it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, bool]] = []
        self.strides: set[tuple[int, ...]] = set()

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Any:
        assert not (q.isnan().any() or k.isnan().any() or v.isnan().any())
        self.calls.append((q.shape[1], k.shape[1], causal))
        self.strides |= {k.stride(), v.stride()}
        return reference(q, k, v, causal, scale)


@pytest.mark.parametrize(
    ("length", "count", "calls"),
    [
        (64, 64, [(64, 64, True)]),
        (80, 80, [(64, 64, True)]),
        (100, 60, [(64, 64, True), (64, 32, False)]),
        (224, 64, [(64, 64, True), (64, 64, False), (64, 64, False), (64, 32, False)]),
    ],
)
def test_the_dense_route(
    make_scene: Make,
    device: torch.device,
    dtype: torch.dtype,
    length: int,
    count: int,
    calls: list[tuple[int, int, bool]],
) -> None:
    recorder = Recorder()
    prefill = LatentPrefill(LatentDense(recorder, Limits(48, 32, 64, 64)), 1)
    check(make_scene, prefill, device, [5, length, 20], [1, count, 9], dtype=dtype)
    assert recorder.calls == calls
    assert len(recorder.strides) == 1, "the library makes a plan for strides, too"


def test_the_trial_knows_values_of_their_own_size() -> None:
    for attend in (reference, lambda *told: padded_on_host(*told)):
        assert trial(attend, 2, 2, 48, torch.float16, CPU, 32) is None
    assert trial(reference, 2, 2, 48, torch.float16, CPU) is None
    assert "shape" in (trial(too_long, 2, 2, 48, torch.float16, CPU, 32) or "")


def padded_on_host(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Any:
    assert v.shape[2] == 32 and padded is not None
    out, lse = reference(q, k, torch.nn.functional.pad(v, (0, 16)), causal, scale)
    return out[..., :32], lse


def too_long(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Any:
    return reference(q, k, torch.nn.functional.pad(v, (0, 16)), causal, scale)


def one(tokens: int, past: int, begin: int = 0, row: int = 0) -> Slice:
    return Slice(row, SliceExtent(begin, begin + tokens, past + tokens))


@pytest.mark.parametrize(
    ("tokens", "past", "is_absorbed"),
    [(1, LONG, True), (1, LONG - 1, False), (32, 9000, True), (33, 9000, False), (5, 0, False)],
)
def test_a_few_tokens_after_a_long_past_are_absorbed(
    tokens: int, past: int, is_absorbed: bool
) -> None:
    assert bool(absorbed([one(tokens, past)], LARGE)) == is_absorbed


def test_a_step_absorbs_a_bounded_number_of_tokens() -> None:
    found = absorbed([one(30, 5000)] * 20, LARGE)
    assert sum(each.tokens for each in found) == MOST_ABSORBED // 30 * 30


@pytest.mark.parametrize("slots", [1, 40, 132, 1000])
@pytest.mark.parametrize("most", [500, 1000, 5000])
def test_every_token_meets_every_position_once(slots: int, most: int) -> None:
    slices = [one(300, 2000)] if most < 2300 else [one(300, 1000, 7, 1), one(20, 700, 400, 2)]
    found = make_pass(slices, most, Tiling(64, 32, 2, slots))
    seen: dict[int, list[tuple[int, int]]] = {}
    parts: set[int] = set()
    for chunk in found.chunks:
        for piece in chunk.pieces:
            (home,) = [
                each
                for each in chunk.ranges
                if each.place <= piece.place < each.place + each.positions
            ]
            begin = home.begin + piece.place - home.place
            seen.setdefault(piece.token, []).append((begin, begin + piece.keys))
            past = next(each for each in slices if each.row == home.row).extent
            assert begin + piece.position == past.past + piece.token - past.begin
            assert piece.place + piece.keys <= home.place + home.positions
            parts |= {piece.part} if piece.flags else set()
    for each in slices:
        for token in range(each.extent.begin, each.extent.end, 64):
            reach = each.extent.past + min(token + 64, each.extent.end) - each.extent.begin
            ranges = sorted(seen.pop(token))
            assert ranges[0][0] == 0 and ranges[-1][1] == reach
            assert all(a[1] == b[0] for a, b in pairwise(ranges))
    assert not seen and parts == set(range(found.parts))


def test_scratch_is_bounded_however_long_the_past(config: Any) -> None:
    attention = TritonAttention(config)
    spec = KvSpec(16, 1, 576, torch.bfloat16, 16, latent=LARGE)
    short, long = (
        attention._latent.prefill.workspace(spec, BatchLimits(8192, 64, blocks), CPU)
        for blocks in (1024, 65_536)
    )
    assert ROOM < short < long < 2 * ROOM


def test_what_is_stored(config: Any, device: torch.device, make_scene: Make) -> None:
    attention = TritonAttention(config)
    spec = KvSpec(16, 1, SIZES.stored, torch.float32, 8, latent=SIZES)
    for encoding, scales in ((None, None), (E4M3, KvScales(torch.tensor([0.5]), torch.ones(1)))):
        encoded = spec._replace(encoding=encoding)
        (tensor,) = attention.layout(encoded).tensors
        pool = torch.zeros(5, *tensor.shape, dtype=tensor.dtype, device=device)
        x_T1H = torch.randn(6, 1, SIZES.stored + 8, device=device)[..., : SIZES.stored]
        slots_T = torch.tensor([9, 3, -1, 39, 0, 17], device=device)
        moved = scales and KvScales(*(x.to(device) for x in scales))
        layer = KvLayer({"latent": pool}, 1.0, None, moved, encoding)
        step = attention.prepare(AttnBatch(slots_T, slots_T, slots_T, slots_T, 6, 1, 1, ()))
        attention.write(x_T1H, x_T1H[..., : SIZES.rank], layer, step)
        plain = TorchAttention()
        reference_layer = layer._replace(
            tensors={"latent": torch.zeros_like(pool).view(5, 8, 1, -1)}
        )
        kept = slots_T >= 0
        batch = AttnBatch(slots_T, slots_T, slots_T, slots_T[kept], 5, 1, 1, ())
        plain.write(x_T1H[kept], x_T1H[kept], reference_layer, plain.prepare(batch))
        wanted = reference_layer.tensors["latent"].flatten()
        assert torch.equal(pool.flatten().float(), wanted.float())
