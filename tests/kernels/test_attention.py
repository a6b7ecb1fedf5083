"""Paged attention of every plugin against dense float64 attention."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from jackfield.core.api.kernel import KvSpec
from jackfield.plugins.kernels.cpu.attention import CpuAttention

Make = Callable[..., Any]
Ops = Mapping[str, Any]
BLOCK = 16
EDGES = [1, BLOCK - 1, BLOCK, BLOCK + 1, 1100, 511, 512, 513]


def exact(scene: Any, operations: Ops) -> None:
    out = scene.run(operations["attention"])
    torch.testing.assert_close(out.double(), scene.reference(), atol=5e-6, rtol=1e-5)


def as_good_as_torch(scene: Any, operations: Ops) -> None:
    truth = scene.reference()
    error = (scene.run(operations["attention"]).double() - truth).abs().max()
    assert error <= 2 * (scene.reference(scene.spec.dtype).double() - truth).abs().max()


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (6, 2), (8, 2), (7, 1), (10, 2)])
@pytest.mark.parametrize("head_dim", [64, 80])
def test_decodes_of_edge_lengths(
    operations: Ops, make_scene: Make, heads: tuple[int, int], head_dim: int
) -> None:
    exact(make_scene(EDGES, heads=heads, head_dim=head_dim), operations)


@pytest.mark.parametrize("head_dim", [16, 96, 128, 256])
def test_head_sizes(operations: Ops, make_scene: Make, head_dim: int) -> None:
    exact(make_scene([40, 7, 90], [1, 1, 65], head_dim=head_dim), operations)


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (3, 1), (8, 2), (7, 1), (100, 1)])
def test_prefills(operations: Ops, make_scene: Make, heads: tuple[int, int]) -> None:
    lens = [1, 5, BLOCK, 130, 97, 200]
    exact(make_scene(lens, [1, 5, BLOCK, 130, 33, 2], heads=heads), operations)


def test_mixed_batch_with_cached_prefixes(operations: Ops, make_scene: Make) -> None:
    exact(make_scene([33, 1, 700, 64, 80, 600, 17], [1, 1, 1, 64, 40, 70, 1]), operations)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_divide_the_work(operations: Ops, make_scene: Make, threads: int) -> None:
    torch.set_num_threads(threads)
    exact(make_scene([33, 1, 700, 80, 200], [1, 1, 1, 80, 70], heads=(6, 3)), operations)


@pytest.mark.parametrize("window", [1, 5, 16, 40, 600, 10_000])
def test_windows(operations: Ops, make_scene: Make, window: int) -> None:
    lens, counts = [1, 20, 1200, 90, 150], [1, 1, 1, 90, 100]
    exact(make_scene(lens, counts, window=window, heads=(3, 1)), operations)


@pytest.mark.parametrize("block_size", [1, 5, 32, 256])
def test_block_sizes(operations: Ops, make_scene: Make, block_size: int) -> None:
    exact(make_scene([260, 31, 70], [1, 1, 40], block_size=block_size), operations)


@pytest.mark.parametrize("garbage", [-1, 2**31 - 1, -(2**31)])
def test_table_entries_past_the_length_are_never_read(
    operations: Ops, make_scene: Make, garbage: int
) -> None:
    exact(make_scene([17, 1, 300, 40], [1, 1, 1, 8], garbage=garbage), operations)


@pytest.mark.parametrize("heads", [(2, 2), (6, 2), (8, 2), (7, 1)])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_bfloat16(operations: Ops, make_scene: Make, heads: tuple[int, int], head_dim: int) -> None:
    half = torch.bfloat16
    scene = make_scene([1, BLOCK, BLOCK + 1, 513], heads=heads, head_dim=head_dim, dtype=half)
    as_good_as_torch(scene, operations)
    scene = make_scene([129, 90], [129, 33], heads=heads, head_dim=head_dim, dtype=half)
    as_good_as_torch(scene, operations)


def test_a_decode_does_not_depend_on_its_batch(operations: Ops, make_scene: Make) -> None:
    attention = operations["attention"]
    together = make_scene([600, 40, 1500, 3]).run(attention)
    torch.set_num_threads(2)
    alone = make_scene([600]).run(attention)
    # Padding may reorder the sums of plain torch.
    exactly = isinstance(attention, CpuAttention)
    tolerance = 0 if exactly else 2e-6
    torch.testing.assert_close(together[:1], alone, atol=tolerance, rtol=0)


def test_a_second_step_reuses_what_was_prepared(operations: Ops, make_scene: Make) -> None:
    attention = operations["attention"]
    step = None
    for lens in ([30, 20], [900, 2, 40]):
        scene = make_scene(lens)
        layer = scene.layer(attention)
        q, k, v = scene.step_inputs()
        step = attention.prepare(scene.batch())
        attention.write(k, v, layer, step)
        out = attention.forward(q, layer, step, torch.empty(q.shape))
        torch.testing.assert_close(out.double(), scene.reference(), atol=5e-6, rtol=1e-5)


def test_layers_of_two_shapes_share_a_step(operations: Ops, make_scene: Make) -> None:
    attention = operations["attention"]
    wide = make_scene([50, 600, 80], [1, 1, 60], heads=(4, 2))
    narrow = make_scene([50, 600, 80], [1, 1, 60], heads=(12, 2), window=30)
    narrow.tables = wide.tables
    step = attention.prepare(wide.batch())
    for scene in (wide, narrow, wide):
        layer = scene.layer(attention)
        q, k, v = scene.step_inputs()
        attention.write(k, v, layer, step)
        out = attention.forward(q, layer, step, torch.empty(q.shape))
        torch.testing.assert_close(out.double(), scene.reference(), atol=5e-6, rtol=1e-5)


def test_large_scores_do_not_overflow(operations: Ops, make_scene: Make) -> None:
    scene = make_scene([40, 600, 70], [1, 1, 70])
    scene.q = [q * 100 for q in scene.q]
    out = scene.run(operations["attention"])
    torch.testing.assert_close(out.double(), scene.reference(), atol=2e-4, rtol=1e-3)


def test_the_layout_holds_one_block(operations: Ops) -> None:
    layout = operations["attention"].layout(KvSpec(4, 2, 64, torch.bfloat16, 16))
    assert layout.bytes_per_block == 2 * 2 * 16 * 64 * 2
