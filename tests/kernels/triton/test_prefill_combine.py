"""Partial results of attention, put together in one pass."""

import pytest
import torch
from torch import Tensor

from jackfield.plugins.kernels.triton.gather import PARTS, Attended, combine, combine_kept

pytestmark = pytest.mark.few_combinations

TOLERANCES = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def make_parts(
    count: int, heads: int, rows: int, head_dim: int, dtype: torch.dtype, *, by_token: bool
) -> list[Attended]:
    """Results `[N, S, H]`, that lie as `[S, N, H]` if by_token."""
    parts = []
    for _ in range(count):
        part_NSH = torch.randn(heads, rows, head_dim)
        if by_token:
            part_NSH = part_NSH.transpose(0, 1).contiguous().transpose(0, 1)
        parts.append((part_NSH.to(dtype), torch.randn(heads, rows) * 5))
    return parts


def wanted(parts: list[Attended]) -> Tensor:
    """[S, N, H], in float64."""
    weights = torch.stack([lse for _, lse in parts]).double().softmax(0)
    found = sum(
        weight[..., None] * part.double() for weight, (part, _) in zip(weights, parts, strict=True)
    )
    assert isinstance(found, Tensor)
    return found.transpose(0, 1)


def room(rows: int, heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """For a result, between other things."""
    return torch.full((rows + 2, heads + 3, head_dim), float("nan"), dtype=dtype)


@pytest.mark.parametrize("by_token", [True, False])
@pytest.mark.parametrize(
    ("count", "rows", "skipped", "head_dim"),
    [(1, 33, 0, 16), (2, 64, 5, 128), (3, 70, 64, 80), (4, 31, 30, 64)],
)
def test_parts_are_weighted_by_their_sums(
    dtype: torch.dtype, count: int, rows: int, skipped: int, head_dim: int, by_token: bool
) -> None:
    parts = make_parts(count, 3, rows, head_dim, dtype, by_token=by_token)
    out = room(rows - skipped, 3, head_dim, dtype)
    combine(parts, skipped, out[1:-1, :3])
    close = {"atol": TOLERANCES[dtype], "rtol": TOLERANCES[dtype]}
    torch.testing.assert_close(out[1:-1, :3].double(), wanted(parts)[skipped:], **close)
    assert out[0].isnan().all() and out[-1].isnan().all() and out[:, 3:].isnan().all()


def test_what_was_combined_is_a_part_again(dtype: torch.dtype) -> None:
    parts = make_parts(PARTS + 2, 2, 40, 16, dtype, by_token=True)
    first = combine_kept(parts[:PARTS])
    assert first[0].dtype == torch.float32
    sums = torch.stack([lse for _, lse in parts[:PARTS]]).logsumexp(0)
    torch.testing.assert_close(first[1], sums)
    out = room(37, 2, 16, dtype)
    combine([first, *parts[PARTS:]], 3, out[1:-1, :2])
    close = {"atol": TOLERANCES[dtype], "rtol": TOLERANCES[dtype]}
    torch.testing.assert_close(out[1:-1, :2].double(), wanted(parts)[3:], **close)


def test_a_part_that_saw_no_keys_may_hold_anything(dtype: torch.dtype) -> None:
    parts = make_parts(3, 2, 20, 16, dtype, by_token=True)
    expected = wanted([parts[0], parts[2]])
    parts[1][0].fill_(float("nan"))
    parts[1][1].fill_(float("-inf"))
    out = room(20, 2, 16, dtype)
    combine(parts, 0, out[1:-1, :2])
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(out[1:-1, :2].double(), expected, atol=tolerance, rtol=tolerance)


def test_rows_that_saw_nothing_are_zero_and_stay_so() -> None:
    parts = make_parts(2, 2, 20, 16, torch.float32, by_token=True)
    for part, lse in parts:
        part[:, 7] = float("nan")
        lse[:, 7] = float("-inf")
    kept = combine_kept(parts)
    assert (kept[0][:, 7] == 0).all() and (kept[1][:, 7] == float("-inf")).all()
    assert kept[1].isfinite().sum() == 2 * 19


def test_large_sums_do_not_overflow() -> None:
    parts = make_parts(4, 2, 20, 16, torch.float32, by_token=False)
    for (_, lse), offset in zip(parts, (300.0, -300.0, 299.0, 0.0), strict=True):
        lse += offset
    out = room(20, 2, 16, torch.float32)
    combine(parts, 0, out[1:-1, :2])
    torch.testing.assert_close(out[1:-1, :2].double(), wanted(parts), atol=2e-5, rtol=2e-5)


def test_parts_that_lie_differently_are_refused() -> None:
    parts = make_parts(1, 2, 20, 16, torch.float32, by_token=True)
    parts += make_parts(1, 2, 20, 16, torch.float32, by_token=False)
    with pytest.raises(AssertionError):
        combine(parts, 0, torch.empty(20, 2, 16))
