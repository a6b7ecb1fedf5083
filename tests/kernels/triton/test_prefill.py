"""Paged prefill attention against dense float64 attention, in tiles and by the dense route."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.encoding import KvEncoding, KvScales
from jackfield.core.api.kernel import AttnBatch, KvLayer, KvLayout, KvSpec, KvTensor, SliceExtent
from jackfield.plugins.kernels.torch_ops.encoding import restore, store
from jackfield.plugins.kernels.triton.attention import TritonAttention
from jackfield.plugins.kernels.triton.cudnn import reference
from jackfield.plugins.kernels.triton.dense_prefill import NEVER, DensePrefill, Limits, Split
from jackfield.plugins.kernels.triton.prefill import TritonPrefill
from jackfield.plugins.kernels.triton.support import TritonConfig

# The interpreter runs loops over bounds that the device knows.
pytestmark = [
    pytest.mark.few_combinations,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]

Make = Callable[..., Any]
CPU = torch.device("cpu")
SPEC = KvSpec(32, 8, 128, torch.bfloat16, 16)
E4M3 = KvEncoding("e4m3", torch.float8_e4m3fn, 448.0)
E5M2 = KvEncoding("e5m2", torch.float8_e5m2, 57344.0)
INT8 = KvEncoding("int8", torch.int8, 127.0)
TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 2e-2}


class Paged:
    """A prefill with a pool around it, for scenes that live on the host."""

    def __init__(self, prefill: TritonPrefill, device: torch.device) -> None:
        self.prefill, self.device = prefill, device

    def layout(self, spec: KvSpec) -> KvLayout:
        dtype = spec.dtype if spec.encoding is None else spec.encoding.dtype
        shape = (spec.num_kv_heads, spec.block_size, spec.head_dim)
        return KvLayout((KvTensor("k", shape, dtype), KvTensor("v", shape, dtype)))

    def prepare(self, batch: AttnBatch) -> AttnBatch:
        return batch

    def write(self, k_TKH: Tensor, v_TKH: Tensor, layer: KvLayer, step: AttnBatch) -> None:
        for name, x_TKH in (("k", k_TKH), ("v", v_TKH)):
            pool = layer.tensors[name]
            if layer.encoding is not None:
                scale = None if layer.scales is None else getattr(layer.scales, f"{name}_K")
                x_TKH = store(x_TKH, scale, layer.encoding).view(torch.uint8)
                pool = pool.view(torch.uint8)
            size = pool.shape[2]
            pool[step.slots_T // size, :, step.slots_T % size] = x_TKH

    def forward(self, q_TNH: Tensor, layer: KvLayer, step: AttnBatch, out_TNH: Tensor) -> Tensor:
        moved = step._replace(
            **{
                name: getattr(step, name).to(self.device)
                for name in ("query_start_S1", "lens_S", "block_tables_SB", "slots_T")
            }
        )
        tensors = {name: x.to(self.device) for name, x in layer.tensors.items()}
        scales = layer.scales and KvScales(*(x.to(self.device) for x in layer.scales))
        wide = [self._beside(x) for x in (q_TNH, out_TNH)]
        there = layer._replace(tensors=tensors, scales=scales)
        self.prefill.forward(wide[0], there, self.prefill.prepare(moved), wide[1])
        return wide[1].to(CPU)

    def _beside(self, x_TNH: Tensor) -> Tensor:
        """On the device, with other things between the tokens."""
        tokens, heads, head_dim = x_TNH.shape
        merged = torch.full(
            (tokens, heads + 3, head_dim), float("nan"), dtype=x_TNH.dtype, device=self.device
        )
        merged[:, :heads] = x_TNH
        return merged[:, :heads]


@pytest.fixture
def on_device() -> None:
    """Scenes are made on the host."""


@pytest.fixture
def tiled(device: torch.device) -> Paged:
    """No slice is long enough for another route, and tiles are not divided."""
    return Paged(TritonPrefill(DensePrefill(limits=NEVER), slots=1), device)


def check(scene: Any, paged: Paged, scales: KvScales | None = None) -> None:
    out = scene.run(paged, scales)
    begin = scene.batch().num_decodes
    assert out[:begin].isnan().all()
    tolerance = TOLERANCES[scene.spec.dtype]
    wanted = scene.reference()[begin:]
    torch.testing.assert_close(out[begin:].double(), wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (4, 1), (7, 1)])
def test_lengths_around_tiles(
    tiled: Paged, make_scene: Make, dtype: torch.dtype, heads: tuple[int, int]
) -> None:
    lens = [2, 15, 16, 17, 66, 129 if heads[1] == 1 else 65]
    check(make_scene(lens, [2, 15, 16, 17, 3, lens[-1]], heads=heads, dtype=dtype), tiled)


@pytest.mark.parametrize("pasts", [(0, 1, 15, 16, 17), (31, 32, 33, 300)])
def test_pasts_around_pages(tiled: Paged, make_scene: Make, pasts: tuple[int, ...]) -> None:
    counts = [2, 33, 3, 20, 15][: len(pasts)]
    lens = [past + count for past, count in zip(pasts, counts, strict=True)]
    check(make_scene(lens, counts), tiled)


def test_decodes_before_the_prompts_are_left_alone(
    tiled: Paged, make_scene: Make, dtype: torch.dtype
) -> None:
    lens = [33, 1, 300, 64, 80, 17]
    check(make_scene(lens, [1, 1, 1, 64, 40, 1], dtype=dtype), tiled)


def test_a_step_of_decodes_is_nothing_to_do(tiled: Paged, make_scene: Make) -> None:
    assert make_scene([40, 3]).run(tiled).isnan().all()


@pytest.mark.parametrize("head_dim", [16, 64, 80, 96, 128, 256])
def test_head_sizes(tiled: Paged, make_scene: Make, dtype: torch.dtype, head_dim: int) -> None:
    scene = make_scene([40, 50], [37, 20], head_dim=head_dim, dtype=dtype, heads=(2, 1))
    check(scene, tiled)


def test_a_group_of_more_heads_than_a_tile_has_rows(tiled: Paged, make_scene: Make) -> None:
    check(make_scene([20, 50], [3, 5], heads=(40, 1)), tiled)


@pytest.mark.parametrize(
    ("window", "slots"),
    [(1, 1), (5, 64), (32, 1), (600, 64), (10_000, 1)]
    + [pytest.param(*more, marks=pytest.mark.all_kernels) for more in ((40, 1), (100, 64))],
)
def test_windows(device: torch.device, make_scene: Make, window: int, slots: int) -> None:
    paged = Paged(TritonPrefill(DensePrefill(limits=NEVER), slots), device)
    scene = make_scene([20, 700, 70, 150], [1, 9, 70, 30], window=window, heads=(3, 1))
    check(scene, paged)


def test_a_window_in_half_precision(tiled: Paged, make_scene: Make) -> None:
    lens, counts = [200, 90, 250], [100, 90, 7]
    check(make_scene(lens, counts, window=70, heads=(4, 2), dtype=torch.float16), tiled)


@pytest.mark.parametrize("block_size", [1, 5, 32, 256])
def test_block_sizes(tiled: Paged, make_scene: Make, block_size: int) -> None:
    scene = make_scene([260, 31, 50], [40, 31, 20], block_size=block_size, heads=(2, 1))
    check(scene, tiled)


@pytest.mark.parametrize(
    ("garbage", "window"), [(-1, 20), (2**31 - 1, None), (2**31 - 1, 20), (-(2**31), None)]
)
def test_table_entries_that_are_not_seen_are_never_followed(
    tiled: Paged, make_scene: Make, garbage: int, window: int | None
) -> None:
    lens, counts = [17, 150, 40], [16, 50, 8]
    check(make_scene(lens, counts, garbage=garbage, window=window, heads=(2, 1)), tiled)


def test_large_scores_do_not_overflow(tiled: Paged, make_scene: Make) -> None:
    scene = make_scene([170], [70], heads=(2, 1))
    scene.q = [q * 100 for q in scene.q]
    out = scene.run(tiled)
    torch.testing.assert_close(out.double(), scene.reference(), atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("encoding", [E4M3, E5M2, INT8], ids=lambda encoding: encoding.name)
def test_encodings(
    tiled: Paged, make_scene: Make, dtype: torch.dtype, encoding: KvEncoding
) -> None:
    scene = make_scene([110, 20], [40, 20], dtype=dtype, encoding=encoding)
    check_encoded(scene, tiled, _scales(dtype != torch.float32))


def _scales(scaled: bool) -> KvScales | None:
    return KvScales(torch.tensor([0.02, 0.05]), torch.tensor([0.04, 0.03])) if scaled else None


def check_encoded(scene: Any, paged: Paged, scales: KvScales | None) -> None:
    """Against attention to what is stored."""
    out = scene.run(paged, scales)
    for name in ("keys", "values"):
        scale = scales and (scales.k_K if name == "keys" else scales.v_K)
        stored = (store(x, scale, scene.spec.encoding) for x in getattr(scene, name))
        setattr(scene, name, [restore(x, scale) for x in stored])
    tolerance = TOLERANCES[scene.spec.dtype]
    torch.testing.assert_close(
        out.double(), scene.reference(), atol=tolerance, rtol=tolerance, check_dtype=False
    )


@pytest.mark.parametrize(
    ("slots", "heads"),
    [(8, (2, 1)), (40, (7, 1)), pytest.param(1000, (4, 2), marks=pytest.mark.all_kernels)],
)
def test_few_tiles_are_divided_by_their_keys(
    device: torch.device, make_scene: Make, slots: int, heads: tuple[int, int]
) -> None:
    paged = Paged(TritonPrefill(DensePrefill(limits=NEVER), slots), device)
    check(make_scene([1300, 520, 3], [3, 9, 2], heads=heads), paged)


def test_divided_tiles_in_half_precision(device: torch.device, make_scene: Make) -> None:
    paged = Paged(TritonPrefill(DensePrefill(limits=NEVER), 132), device)
    check(make_scene([1100], [20], dtype=torch.float16, head_dim=80), paged)


def test_layers_of_several_kinds_share_a_step(tiled: Paged, make_scene: Make) -> None:
    """Windows, heads and types differ between layers of a group."""
    scenes = [
        make_scene([50, 80], [1, 60], heads=(4, 2)),
        make_scene([50, 80], [1, 60], heads=(6, 2), window=30),
    ]
    scenes[1].tables = scenes[0].tables
    prefill = tiled.prefill
    batch = scenes[0].batch()
    step = prefill.prepare(batch._replace(block_tables_SB=batch.block_tables_SB.to(tiled.device)))
    for scene in (*scenes, scenes[0]):
        layer = scene.layer(tiled)
        q, k, v = scene.step_inputs()
        tiled.write(k, v, layer, batch)
        tensors = {name: x.to(tiled.device) for name, x in layer.tensors.items()}
        out = torch.empty(q.shape, device=tiled.device)
        prefill.forward(q.to(tiled.device), layer._replace(tensors=tensors), step, out)
        torch.testing.assert_close(
            out[1:].to(CPU).double(), scene.reference()[1:], atol=5e-6, rtol=1e-5
        )


class Recorder:
    """Plain attention in the place of the library's; keeps the shapes that it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, bool]] = []
        self.strides: set[tuple[int, ...]] = set()

    def __call__(
        self, q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        assert not k_KLH.isnan().any() and not v_KLH.isnan().any() and not q_NSH.isnan().any()
        self.calls.append((q_NSH.shape[1], k_KLH.shape[1], causal))
        self.strides.add(q_NSH.stride())
        return reference(q_NSH, k_KLH, v_KLH, causal, scale)


def _dense(recorder: Recorder, device: torch.device, limits: Limits) -> Paged:
    return Paged(TritonPrefill(DensePrefill(recorder, limits), slots=1), device)


@pytest.mark.parametrize(
    ("length", "count", "calls"),
    [
        (128, 128, [(128, 128, True)]),
        (150, 150, [(128, 128, True)]),
        (192, 128, [(128, 128, True), (128, 64, False)]),
        (200, 120, [(128, 128, True), (128, 64, False)]),
        (340, 140, [(128, 128, True), (128, 128, False), (128, 64, False)]),
    ],
)
def test_the_dense_route(
    device: torch.device,
    make_scene: Make,
    length: int,
    count: int,
    calls: list[tuple[int, int, bool]],
) -> None:
    recorder = Recorder()
    paged = _dense(recorder, device, Limits(96, 64, 128, 128))
    check(make_scene([5, length, 40], [1, count, 30]), paged)
    assert recorder.calls == calls


@pytest.mark.parametrize(
    ("unit", "reach", "keys"),
    [(128, 256, [256, 128, 64]), (256, 256, [256, 192]), (64, 64, [64] * 7)],
)
def test_keys_of_the_past_are_seen_in_few_ranges_of_few_lengths(
    device: torch.device, make_scene: Make, unit: int, reach: int, keys: list[int]
) -> None:
    recorder = Recorder()
    paged = _dense(recorder, device, Limits(96, 64, unit, reach))
    check(make_scene([576], [128], heads=(2, 1), dtype=torch.float16), paged)
    assert recorder.calls == [(128, 128, True), *((128, length, False) for length in keys)]


@pytest.mark.parametrize("before", [0, 15, 16, 40])
def test_rows_in_front_of_the_first_token_change_nothing(
    device: torch.device, make_scene: Make, before: int
) -> None:
    """They are other slices', if there are enough; the library sees no difference."""
    recorder = Recorder()
    lens = [before] * (before > 0) + [208]
    scene = make_scene(lens, [*lens[:-1], 128], heads=(2, 1))
    check(scene, _dense(recorder, device, Limits(96, 64, 128, 128)))
    assert recorder.calls == [(128, 128, True), (128, 64, False)]
    assert recorder.strides == {(64, 5 * 64, 1)}


def test_the_dense_route_in_half_precision(device: torch.device, make_scene: Make) -> None:
    paged = _dense(Recorder(), device, Limits(96, 64, 64, 64))
    check(make_scene([340], [140], dtype=torch.float16, head_dim=80), paged)


@pytest.mark.parametrize(("length", "count"), [(95, 95), (159, 96), (200, 90)])
def test_the_dense_route_is_left_where_it_does_not_pay(
    device: torch.device, make_scene: Make, length: int, count: int
) -> None:
    recorder = Recorder()
    check(make_scene([length], [count]), _dense(recorder, device, Limits(96, 64, 128, 128)))
    assert recorder.calls == []


@pytest.mark.parametrize(("window", "calls"), [(255, 0), (256, 2)])
def test_the_dense_route_is_not_for_windows_that_hide_something(
    device: torch.device, make_scene: Make, window: int, calls: int
) -> None:
    recorder = Recorder()
    scene = make_scene([256], [128], window=window, heads=(2, 1))
    check(scene, _dense(recorder, device, Limits(96, 64, 128, 128)))
    assert len(recorder.calls) == calls


@pytest.mark.parametrize("encoding", [E4M3, E5M2, INT8], ids=lambda encoding: encoding.name)
def test_the_dense_route_reads_encoded_pools(
    device: torch.device, make_scene: Make, encoding: KvEncoding
) -> None:
    scene = make_scene([192], [128], encoding=encoding, head_dim=80)
    paged = _dense(Recorder(), device, Limits(96, 64, 128, 128))
    check_encoded(scene, paged, _scales(encoding != E5M2))


def test_prompts_had_better_be_cut_at_whole_steps() -> None:
    dense = DensePrefill(Recorder(), Limits(2048, 1024, 8192, 24_576))
    assert dense.alignment(SPEC, CPU) == 1024
    assert dense.alignment(SPEC._replace(window=4096), CPU) == 1
    assert DensePrefill(Recorder(), Limits(0, 1024, 8192, 8192)).alignment(SPEC, CPU) == 1


@pytest.mark.parametrize(("capability", "dtype", "served"), [
    ((9, 0), torch.bfloat16, True), ((9, 0), torch.float32, False), ((8, 0), torch.float16, False),
])  # fmt: skip
def test_the_layout_tells_where_prompts_had_better_be_cut(
    capability: tuple[int, int], dtype: torch.dtype, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    layout = TritonAttention(TritonConfig()).layout(SPEC._replace(dtype=dtype))
    assert layout.prompt_alignment % 256 == 0 if served else layout.prompt_alignment == 1


def test_a_split_is_made_of_whole_steps() -> None:
    dense = DensePrefill(Recorder(), Limits(2048, 1024, 8192, 24_576))
    split = dense.split(SliceExtent(10, 10 + 8192, 24_577 + 8192), 16, 128, torch.bfloat16, CPU)
    assert split == Split(8191, 24_577, 24_576)
    assert split.end % 1024 == 0


@pytest.mark.parametrize(
    ("tokens", "length", "heads", "served"),
    [
        (8192, 8192, 16, False),
        (8192, 8192, 32, True),
        (8192, 32_768, 16, True),
        (1024, 131_072, 32, False),
        (2048, 2048, 64, False),
        (10_240, 10_240, 16, True),
    ],
)
def test_a_split_is_worth_the_calls(tokens: int, length: int, heads: int, served: bool) -> None:
    dense = DensePrefill(Recorder(), Limits(2048, 1024, 8192, 24_576, 640))
    split = dense.split(SliceExtent(0, tokens, length), heads, 128, torch.bfloat16, CPU)
    assert (split is not None) == served
