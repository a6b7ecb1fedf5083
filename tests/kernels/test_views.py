"""Plain torch reads consecutive blocks where they lie, and gathers the others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from jackfield.plugins.kernels.torch_ops import attention_step
from jackfield.plugins.kernels.torch_ops.attention import TorchAttention
from jackfield.plugins.kernels.torch_ops.attention_step import Geometry, Plan

Make = Callable[..., Any]
LENS = [300, 17, 1, 16, 64, 90, 256, 257]


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is too small to be read where it lies."""
    monkeypatch.setattr(attention_step, "LARGE", 0)
    monkeypatch.setattr(attention_step, "SHORT", 1)


def planned(scene: Any, window: int | None = None) -> Plan:
    spec = scene.spec
    geometry = Geometry(
        scene.num_blocks, spec.block_size, spec.num_kv_heads, spec.head_dim, spec.dtype, window
    )
    plan: Plan = TorchAttention().prepare(scene.batch()).plan(geometry)
    return plan


def scatter(scene: Any, index: int) -> None:
    """Exchange the first two blocks of a sequence."""
    scene.tables[index, :2] = scene.tables[index, :2].flip(0)


def exact(scene: Any) -> None:
    out = scene.run(TorchAttention())
    torch.testing.assert_close(out.double(), scene.reference(), atol=5e-6, rtol=1e-5)


def test_consecutive_blocks_are_not_copied(make_scene: Make) -> None:
    scene = make_scene(LENS, [1, 1, 1, 1, 20, 90, 2, 200], together=True)
    plan = planned(scene)
    assert not plan.gathered
    assert [view.token for view in plan.views] == [0, 1, 2, 3]
    assert [view.where.stop - view.where.start for view in plan.views] == LENS[:4]
    assert all(isinstance(prefill.where, slice) for prefill in plan.prefills)
    exact(scene)


def test_others_are_gathered(make_scene: Make) -> None:
    scene = make_scene(LENS, [1, 1, 1, 1, 20, 90, 2, 200], together=True)
    for index in (0, 1, 5, 7):
        scatter(scene, index)
    plan = planned(scene)
    assert [gathered.where.tolist() for gathered in plan.gathered] == [[0, 1]]
    assert [view.token for view in plan.views] == [2, 3]
    where = [isinstance(prefill.where, slice) for prefill in plan.prefills]
    assert where == [True, False, True, False]
    exact(scene)


def test_a_gap_between_the_last_two_blocks_is_seen(make_scene: Make) -> None:
    scene = make_scene([48], together=True)
    scene.tables[0, 2] += 1
    assert not planned(scene).views
    exact(scene)


def test_entries_past_the_length_are_no_gap(make_scene: Make) -> None:
    scene = make_scene([48, 300], together=True, garbage=-(2**31))
    assert len(planned(scene).views) == 2
    exact(scene)


@pytest.mark.parametrize("window", [1, 5, 16, 40, 10_000])
def test_only_the_window_must_be_consecutive(make_scene: Make, window: int) -> None:
    scene = make_scene([1, 20, 200, 90, 150], [1, 1, 1, 90, 100], window=window, together=True)
    plan = planned(scene, window)
    assert len(plan.views) == 3 and not plan.gathered
    exact(scene)


@pytest.mark.parametrize("block_size", [1, 5, 32, 256])
def test_block_sizes(make_scene: Make, block_size: int) -> None:
    exact(make_scene([260, 31, 70], [1, 1, 40], block_size=block_size, together=True))


def test_float64_is_not_rounded(make_scene: Make) -> None:
    scene = make_scene([30, 200, 90, 64], [1, 1, 20, 64], dtype=torch.float64, together=True)
    out = scene.run(TorchAttention())
    torch.testing.assert_close(out, scene.reference(), atol=1e-12, rtol=1e-12)


def test_half_types_are_as_good_as_dense(make_scene: Make) -> None:
    scene = make_scene([513, 16, 129], [1, 1, 129], dtype=torch.bfloat16, together=True)
    truth = scene.reference()
    error = (scene.run(TorchAttention()).double() - truth).abs().max()
    assert error <= 2 * (scene.reference(torch.bfloat16).double() - truth).abs().max()


def test_empty_slices_read_nothing(make_scene: Make) -> None:
    scene = make_scene([40, 30, 20], [1, 0, 20], together=True)
    assert len(planned(scene).prefills) == 1
    exact(scene)


def test_small_decodes_are_gathered(make_scene: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_step, "LARGE", 300 * 2 * 2 * 64 * 4)
    assert len(planned(make_scene([300], together=True)).views) == 1
    assert not planned(make_scene([299], together=True)).views
    monkeypatch.setattr(attention_step, "SHORT", 300)
    plan = planned(make_scene([300, 299], together=True))
    assert [view.token for view in plan.views] == [0]


@pytest.mark.parametrize("mixed", [False, True])
def test_large_decodes_are_gathered_in_groups(
    make_scene: Make, monkeypatch: pytest.MonkeyPatch, mixed: bool
) -> None:
    scene = make_scene([40, 30, 64, 1, 90, 12, 80], [1] * 6 + [80], together=True)
    for index in (0, 1, 2, 4):
        scatter(scene, index)
    if not mixed:
        monkeypatch.setattr(attention_step, "SHORT", 1000)
    monkeypatch.setattr(attention_step, "ROOM", 2 * 90 * 2 * 2 * 64 * 4)
    plan = planned(scene)
    slices = [gathered.slices for gathered in plan.gathered]
    assert slices == ([2, 2] if mixed else [2, 2, 2])
    assert max(gathered.room.nbytes for gathered in plan.gathered) <= attention_step.ROOM
    exact(scene)
