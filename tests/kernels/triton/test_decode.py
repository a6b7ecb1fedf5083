"""Decodes against dense float64 attention, with pieces so short that every row is cut."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton
import triton.language as tl

from jackfield.core.api.encoding import KvScales
from jackfield.core.api.kernel import AttnBatch, BatchLimits, KvSpec, SharedPrefixes
from jackfield.plugins.cache.fp8 import Fp8
from jackfield.plugins.kernels.torch_ops.encoding import restore, store
from jackfield.plugins.kernels.triton import attention_step
from jackfield.plugins.kernels.triton.attention import TritonAttention
from jackfield.plugins.kernels.triton.encode import FORMATS, as_pairs
from jackfield.plugins.kernels.triton.encode_kernel import decode_pairs
from jackfield.plugins.kernels.triton.support import capability
from jackfield.plugins.kernels.triton.work_list_kernel import ITEM

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

Make = Callable[..., Any]
BLOCK = 16
COSTLY = 1000
"""Positions that a piece is said to cost, so that rows are not cut."""
TOLERANCES = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SMALL = {"TILE": 16, "CTAS": 2, "OVERHEAD": 0, "MERGE": 0, "LAST": 1}
SMALL |= {"num_warps": 4, "num_stages": 2}
EDGES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 0, 47, 49]


class Fixed:
    """A table in which all shapes have the same entry."""

    def __init__(self, **changes: int) -> None:
        self.config = {**SMALL, **changes}

    def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> dict[str, int]:
        return {**self.config, "ROWS": 16, "LAST": 0} if "group" in shape else self.config


@pytest.fixture(params=[{"LAST": 1}, {"LAST": 0}, {"SHARES": 1}], ids=["last", "merge", "shares"])
def attention(request: pytest.FixtureRequest, config: Any) -> TritonAttention:
    return made(config, **request.param)


@pytest.fixture(params=[0, 1], ids=["pieces", "shares"])
def shares(request: pytest.FixtureRequest) -> dict[str, int]:
    return {"SHARES": request.param}


def made(config: Any, **changes: int) -> TritonAttention:
    attention = TritonAttention(config)
    attention._configs = Fixed(**changes)  # type: ignore[assignment]
    return attention


@pytest.fixture
def make(make_scene: Make, device: torch.device) -> Iterator[Make]:
    """Scenes are drawn on the host, so that they are the same everywhere."""

    def moved(lens: list[int], *args: Any, **options: Any) -> Any:
        options.setdefault("heads", (2, 1))
        with torch.device("cpu"):
            scene = make_scene([max(length, 1) for length in lens], *args, **options)
        for name in ("q", "keys", "values"):
            setattr(scene, name, [x.to(device) for x in getattr(scene, name)])
        scene.tables = scene.tables.to(device)
        return scene

    yield moved


def padded(batch: AttnBatch, lens: list[int]) -> AttnBatch:
    """Slices of length 0 store nothing."""
    empty = torch.tensor([length == 0 for length in lens])
    slots = torch.where(empty, -1, batch.slots_T)
    return batch._replace(lens_S=batch.lens_S * ~empty, slots_T=slots)


def run(
    scene: Any, attention: TritonAttention, lens: list[int], scales: KvScales | None = None
) -> Tensor:
    layer = scene.layer(attention, scales)
    q, k, v = scene.step_inputs()
    step = attention.prepare(padded(scene.batch(), lens))
    attention.write(k, v, layer, step)
    out = torch.full(q.shape, float("nan"), dtype=q.dtype)
    return attention.forward(q, layer, step, out)


def check(scene: Any, out: Tensor, lens: list[int]) -> None:
    want = scene.reference()
    want[[length == 0 for length in lens]] = 0
    tolerance = TOLERANCES[scene.spec.dtype]
    torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("heads", [(2, 2), (7, 1)])
def test_edge_lengths(
    attention: TritonAttention, make: Make, dtype: torch.dtype, heads: tuple[int, int]
) -> None:
    scene = make(EDGES, heads=heads, head_dim=16, dtype=dtype)
    check(scene, run(scene, attention, EDGES), EDGES)


@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_head_sizes(
    config: Any, make: Make, shares: dict[str, int], dtype: torch.dtype, head_dim: int
) -> None:
    lens = [33, 0]
    scene = make(lens, heads=(4, 1), head_dim=head_dim, dtype=dtype)
    check(scene, run(scene, made(config, **shares), lens), lens)


@pytest.mark.parametrize("group", [8, 20])
def test_large_groups(attention: TritonAttention, make: Make, group: int) -> None:
    """Of 20 heads only two partial results are merged at once."""
    lens = [33, 66]
    scene = make(lens, heads=(group, 1), head_dim=64)
    check(scene, run(scene, attention, lens), lens)


@pytest.mark.parametrize("block_size", [8, 16, 64])
@pytest.mark.parametrize("tile", [16, 32])
def test_blocks_smaller_and_larger_than_tiles(
    config: Any, make: Make, shares: dict[str, int], block_size: int, tile: int
) -> None:
    lens = [1, 31, 65]
    scene = make(lens, block_size=block_size, head_dim=16)
    check(scene, run(scene, made(config, TILE=tile, OVERHEAD=COSTLY, **shares), lens), lens)


@pytest.mark.parametrize("overhead", [0, COSTLY])
@pytest.mark.parametrize("window", [1, 5, 16, 40, 1000])
def test_windows(
    config: Any, make: Make, shares: dict[str, int], window: int, overhead: int
) -> None:
    lens = [1, 20, 0, 57]
    scene = make(lens, window=window, head_dim=16)
    check(scene, run(scene, made(config, OVERHEAD=overhead, **shares), lens), lens)


@pytest.mark.parametrize("garbage", [-1, 2**31 - 1, -(2**31)])
def test_table_entries_past_the_length_are_never_read(
    attention: TritonAttention, make: Make, garbage: int
) -> None:
    lens = [17, 1, 50]
    scene = make(lens, garbage=garbage, head_dim=16)
    check(scene, run(scene, attention, lens), lens)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "int8"])
def test_encodings(
    config: Any, make: Make, shares: dict[str, int], dtype: torch.dtype, name: str
) -> None:
    """Against dense attention to what the reference reads back."""
    lens = [40, 1]
    encoding = Fp8(Fp8.Config(format=name)).encode(None)
    scales = KvScales(torch.tensor([0.5, 0.021]), torch.tensor([0.017, 2.0]))
    if name == "e5m2":
        scales = KvScales(scales.k_K * 0.01, scales.v_K * 0.01)
    scene = make(lens, heads=(4, 2), dtype=dtype, head_dim=32, encoding=encoding)
    out = run(scene, made(config, **shares), lens, scales)
    for xs, scale_K in ((scene.keys, scales.k_K), (scene.values, scales.v_K)):
        for index, x in enumerate(xs):
            xs[index] = restore(store(x, scale_K, encoding), scale_K)
    check(scene, out, lens)


@triton.jit
def pairs_kernel(
    pairs: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    KIND: tl.constexpr,
    ASSEMBLY: tl.constexpr,
) -> None:
    entry = tl.arange(0, 256)
    one, other = decode_pairs(tl.load(pairs + entry), KIND, ASSEMBLY)
    tl.store(first + entry, one)
    tl.store(second + entry, other)


@pytest.mark.parametrize("stored", list(FORMATS), ids=str)
def test_pairs_of_all_codes(stored: torch.dtype, device: torch.device) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    pairs = torch.stack([codes, codes * 7 + 3], -1).view(stored)
    known = capability(device)
    for used in {0, min(80, known), known}:
        first, second = torch.empty(2, 256, dtype=torch.float16)
        pairs_kernel[(1,)](as_pairs(pairs), first, second, FORMATS[stored].kind, used)
        got = torch.stack([first, second], -1)
        torch.testing.assert_close(got, pairs.to(torch.float16), rtol=0, atol=0, equal_nan=True)


def test_encodings_without_scales(config: Any, make: Make, shares: dict[str, int]) -> None:
    encoding = Fp8(Fp8.Config(format="e4m3")).encode(None)
    scene = make([40, 21], head_dim=32, encoding=encoding)
    out = run(scene, made(config, **shares), [40, 21])
    for xs in (scene.keys, scene.values):
        xs[:] = [restore(store(x, None, encoding), None) for x in xs]
    check(scene, out, [40, 21])


def test_blocks_beyond_32_bits(config: Any, make: Make, shares: dict[str, int]) -> None:
    """A stride between blocks that is larger than the pool: what wraps around reads elsewhere."""
    lens, attention = [40, 33], made(config, **shares)
    scene = make(lens, head_dim=16)
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    step = attention.prepare(scene.batch())
    attention.write(k, v, layer, step)
    far = {name: spread(x, 2**31 // 5) for name, x in layer.tensors.items()}
    out = attention.forward(q, layer._replace(tensors=far), step, torch.empty_like(q))
    check(scene, out, lens)


def spread(x: Tensor, stride: int) -> Tensor:
    """The same blocks, far apart; what lies between is never touched, so it costs no memory."""
    size = stride * (len(x) - 1) + x[0].numel()
    room = torch.empty(size, dtype=x.dtype).as_strided(x.shape, (stride, *x.stride()[1:]))
    return room.copy_(x)


def test_a_step_again_with_other_content(attention: TritonAttention, make: Make) -> None:
    """As a replayed graph does: the same tensors, other lengths, tables, queries and keys."""
    first, second = make([33, 1, 9], head_dim=16), make([3, 50, 0], head_dim=16)
    lens = [3, 50, 0]
    width = max(first.tables.shape[1], second.tables.shape[1])
    tables = torch.full((3, width), -1, dtype=torch.int32)
    tables[:, : first.tables.shape[1]] = first.tables
    batch = first.batch()._replace(block_tables_SB=tables, max_len=50)
    q, k, v = first.step_inputs()
    replay(attention, first, batch, (q, k, v))
    other = padded(second.batch(), lens)
    tables[:, : second.tables.shape[1]] = second.tables
    batch.lens_S.copy_(other.lens_S)
    batch.slots_T.copy_(other.slots_T)
    for x, new in zip((q, k, v), second.step_inputs(), strict=True):
        x.copy_(new)
    check(second, replay(attention, second, batch, (q, k, v)), lens)


def replay(attention: TritonAttention, scene: Any, batch: AttnBatch, qkv: Any) -> Tensor:
    layer = scene.layer(attention)
    step = attention.prepare(batch)
    attention.write(qkv[1], qkv[2], layer, step)
    out = torch.full(qkv[0].shape, float("nan"))
    attention.forward(qkv[0], layer, step, out)
    # The next layer finds the step as the first one did.
    return attention.forward(qkv[0], layer, step, out.fill_(float("nan")))


def test_a_row_hardly_depends_on_the_others(attention: TritonAttention, make: Make) -> None:
    scene = make([70, 20, 3], head_dim=16)
    alone = make([70], head_dim=16)
    together = run(scene, attention, [70, 20, 3])[:1]
    torch.testing.assert_close(together, run(alone, attention, [70]), atol=1e-6, rtol=0)


def test_the_output_may_have_other_things_between_tokens(
    config: Any, make: Make, shares: dict[str, int]
) -> None:
    scene, attention = make([40, 33], head_dim=16), made(config, **shares)
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    step = attention.prepare(scene.batch())
    attention.write(k, v, layer, step)
    room = torch.full((2, 7, 16), float("nan"))
    check(scene, attention.forward(q, layer, step, room[:, 2:4]), [40, 33])
    assert room[:, :2].isnan().all() and room[:, 4:].isnan().all()


def shared_prefixes(
    scene: Any, groups: list[list[int]], commons: list[int]
) -> tuple[SharedPrefixes, Any]:
    """Gives the members of each group the blocks and content of the first one."""
    for members, common in zip(groups, commons, strict=True):
        for index in members[1:]:
            scene.tables[index, : common // BLOCK] = scene.tables[members[0], : common // BLOCK]
            for xs in (scene.keys, scene.values):
                xs[index][:common] = xs[members[0]][:common]
    order = [index for members in groups for index in members]
    made = (
        order,
        [rank for members in groups for rank in range(len(members))],
        [len(members) for members in groups for _ in members],
        [common for members, common in zip(groups, commons, strict=True) for _ in members],
    )
    return SharedPrefixes(*(torch.tensor(x, dtype=torch.int32) for x in made)), scene


GROUPS = [[4, 1, 6, 0, 7], [2], [3, 5], [8]]
COMMONS = [32, 0, 16, 0]
LENS = [33, 50, 5, 17, 40, 33, 60, 34, 0]


@pytest.mark.parametrize("heads", [(4, 1), (6, 2)])
def test_common_beginnings(
    config: Any, make: Make, shares: dict[str, int], dtype: torch.dtype, heads: tuple[int, int]
) -> None:
    attention = made(config, **shares)
    scene = make(LENS, heads=heads, head_dim=16, dtype=dtype)
    shared, scene = shared_prefixes(scene, GROUPS, COMMONS)
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    step = attention.prepare(padded(scene.batch(), LENS)._replace(shared=shared))
    attention.write(k, v, layer, step)
    check(scene, attention.forward(q, layer, step, torch.full_like(q, float("nan"))), LENS)
    assert step.plan(attention_step.geometry_of(q, layer)).grouped


def test_common_beginnings_are_read_once_for_all_members(config: Any, make: Make) -> None:
    """What differs from the first member's blocks is not looked at."""
    attention = made(config)
    scene = make(LENS, heads=(4, 1), head_dim=16)
    shared, scene = shared_prefixes(scene, GROUPS, COMMONS)
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    batch = padded(scene.batch(), LENS)._replace(shared=shared)
    tables = batch.block_tables_SB.clone()
    for index in (1, 6, 0):
        tables[index, :2] = -1
    step = attention.prepare(batch._replace(block_tables_SB=tables))
    attention.write(k, v, layer, step)
    check(scene, attention.forward(q, layer, step, torch.full_like(q, float("nan"))), LENS)


def test_common_beginnings_may_change_between_replays(config: Any, make: Make) -> None:
    attention = made(config)
    scene = make(LENS, heads=(4, 1), head_dim=16)
    shared, scene = shared_prefixes(scene, GROUPS, COMMONS)
    alone = [list(range(9)), [0] * 9, [1] * 9, [0] * 9]
    held = SharedPrefixes(*(torch.tensor(x, dtype=torch.int32) for x in alone))
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    batch = padded(scene.batch(), LENS)._replace(shared=held)
    for content in (held, shared):
        for to, new in zip(held, content, strict=True):
            to.copy_(new)
        step = attention.prepare(batch)
        attention.write(k, v, layer, step)
        check(scene, attention.forward(q, layer, step, torch.full_like(q, float("nan"))), LENS)


def test_rows_stay_whole_if_it_costs_too_much_to_cut_them(config: Any, make: Make) -> None:
    attention, lens = made(config, CUT=1 << 20), [100, 33, 0]
    scene = make(lens, head_dim=16)
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    step = attention.prepare(padded(scene.batch(), lens))
    attention.write(k, v, layer, step)
    check(scene, attention.forward(q, layer, step, torch.empty_like(q)), lens)
    work = step.plan(attention_step.geometry_of(q, layer)).work
    items = work.items.view(-1, ITEM.value)
    assert items[:3, :3].tolist() == [[0, 0, 100], [1, 0, 33], [2, 0, 0]]
    assert work.num_partials[:3].tolist() == [1, 1, 1]
    assert (items[3:, 0] == -1).all() and len(items) == work.capacity + 1


@pytest.mark.parametrize(
    ("max_len", "window", "amount"),
    [(attention_step.SHORT, None, "few"), (attention_step.SHORT + 1, None, "many"),
     (10_000, 100, "few"), (10_000, 5000, "many")],
)  # fmt: skip
def test_few_long_rows_are_launched_like_many(
    config: Any, make: Make, max_len: int, window: int | None, amount: str
) -> None:
    class Noted(Fixed):
        def find(self, shape: str, dtype: torch.dtype, device: torch.device) -> dict[str, int]:
            found.append(shape.partition("_")[0])
            return super().find(shape, dtype, device)

    found: list[str] = []
    attention, lens = made(config), [33, 20]
    attention._configs = Noted(SHARES=1)  # type: ignore[assignment]
    scene = make(lens, head_dim=16, window=window)
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    step = attention.prepare(scene.batch()._replace(max_len=max_len))
    attention.write(k, v, layer, step)
    check(scene, attention.forward(q, layer, step, torch.empty_like(q)), lens)
    assert found == [amount]


def test_layers_with_a_window_do_not_look_for_common_beginnings(config: Any, make: Make) -> None:
    attention = made(config)
    scene = make([49, 70], head_dim=16, window=20)
    alone = SharedPrefixes(
        *(torch.tensor(x, dtype=torch.int32) for x in ([0, 1], [0, 1], [2, 2], [48, 48]))
    )
    layer, (q, k, v) = scene.layer(attention), scene.step_inputs()
    step = attention.prepare(scene.batch()._replace(shared=alone))
    attention.write(k, v, layer, step)
    check(scene, attention.forward(q, layer, step, torch.empty_like(q)), [49, 70])


def test_decodes_beside_prompts(config: Any, make: Make, shares: dict[str, int]) -> None:
    attention, lens = made(config, **shares), [33, 1, 20, 18]
    scene = make(lens, [1, 1, 20, 3], heads=(4, 2), head_dim=16)
    out = scene.run(attention)
    torch.testing.assert_close(out.double(), scene.reference(), atol=5e-6, rtol=1e-5)


def test_scratch_grows_with_the_layer_groups(config: Any) -> None:
    attention, limits = TritonAttention(config), BatchLimits(64, 8, 100)
    assert attention.workspace(limits) == 0
    attention.layout(KvSpec(4, 2, 64, torch.float16, 16))
    one = attention.workspace(limits)
    attention.layout(KvSpec(4, 2, 64, torch.float16, 16, window=100))
    assert attention.workspace(limits) > one > 8 * 4 * 65 * 4


def test_the_layout_holds_one_block(config: Any) -> None:
    attention = TritonAttention(config)
    encoding = Fp8(Fp8.Config(format="e4m3")).encode(None)
    assert attention.layout(KvSpec(4, 2, 64, torch.float16, 16)).bytes_per_block == 8192
    spec = KvSpec(4, 2, 64, torch.float16, 16, encoding=encoding)
    assert attention.layout(spec).bytes_per_block == 4096


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (KvSpec(4, 2, 72, torch.float16, 16), "head size"),
        (KvSpec(4, 2, 272, torch.float16, 16), "head size"),
        (KvSpec(65, 1, 64, torch.float16, 16), "query heads"),
        (KvSpec(4, 2, 64, torch.float16, 24), "power of two"),
        (KvSpec(4, 2, 64, torch.float16, 4), "power of two"),
        (KvSpec(4, 2, 64, torch.float64, 16), "float64"),
    ],
)
def test_what_is_refused(config: Any, device: torch.device, spec: KvSpec, word: str) -> None:
    (reason,) = TritonAttention(config).unsupported(spec, device)
    assert word in reason


def test_the_shipped_table_serves_what_is_not_refused(
    config: Any, device: torch.device, make: Make, dtype: torch.dtype
) -> None:
    attention, lens = TritonAttention(config), [130, 1]
    assert attention.unsupported(KvSpec(32, 8, 128, dtype, 16), device) == []
    assert attention.capturable(1024, 1 << 20)
    scene = make(lens, heads=(2, 1), head_dim=80, dtype=dtype)
    check(scene, run(scene, attention, lens), lens)
