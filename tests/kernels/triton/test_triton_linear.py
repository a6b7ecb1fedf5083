"""Products of few rows against float64, at shapes that no block divides."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton import configs as tables
from jackfield.plugins.kernels.triton import linear as module
from jackfield.plugins.kernels.triton.linear import LinearConfigs, TritonLinear

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
CPU = torch.device("cpu")
VECTOR = {"OUTPUTS": 4, "UNROLL": 1, "AHEAD": 0, "num_warps": 1, "num_stages": 1}
TILE = {"OUTPUTS": 16, "BLOCK": 32, "PARTS": 1, "SPLITS": 1, "AHEAD": 0}
TILE |= {"num_warps": 4, "num_stages": 2}
VECTORS = [VECTOR, {**VECTOR, "OUTPUTS": 2, "UNROLL": 2, "num_warps": 2}]
TILES = [
    TILE,
    {**TILE, "SPLITS": 3},
    {**TILE, "PARTS": 4, "BLOCK": 16},
    {**TILE, "OUTPUTS": 32, "PARTS": 4, "BLOCK": 16, "SPLITS": 2},
]


class Fixed:
    """A table with one entry."""

    def __init__(self, config: dict[str, int] | None) -> None:
        self.config = config

    def find(self, rows: int, weight_OI: Tensor) -> dict[str, int] | None:
        return self.config


def linear(config: Any, entry: dict[str, int] | None) -> TritonLinear:
    operation = TritonLinear(config)
    operation._configs = Fixed(entry)  # type: ignore[assignment]
    return operation


def check(operation: TritonLinear, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    packed = operation.pack(weight, bias)
    want = torch.nn.functional.linear(
        x.double(), weight.double(), None if bias is None else bias.double()
    )
    for _ in range(2):  # what the first call leaves behind must not disturb the second
        out = operation(x, packed)
        assert out.dtype is x.dtype
        assert out.shape == want.shape
        tolerance = TOLERANCES[x.dtype]
        torch.testing.assert_close(out.double(), want, atol=tolerance, rtol=tolerance)
    assert not packed.counters.any()


def product(rows: int, outputs: int, inputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x = torch.randn(rows, inputs, dtype=dtype)
    return x, (torch.randn(outputs, inputs) * inputs**-0.5).to(dtype)


@pytest.fixture(autouse=True)
def only_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Tensor:
        raise AssertionError("left to torch")

    monkeypatch.setattr(module, "linear", refuse)


@pytest.mark.parametrize("entry", VECTORS)
@pytest.mark.parametrize(
    ("rows", "outputs", "inputs"), [(1, 10, 520), (2, 5, 256), (3, 7, 300), (4, 4, 1024), (1, 1, 3)]
)
def test_vectors(
    config: Any, dtype: torch.dtype, entry: Any, rows: int, outputs: int, inputs: int
) -> None:
    x, weight = product(rows, outputs, inputs, dtype)
    check(linear(config, entry), x, weight, torch.randn(outputs, dtype=dtype))
    check(linear(config, entry), x, weight, None)


@pytest.mark.parametrize("entry", TILES)
@pytest.mark.parametrize(
    ("rows", "outputs", "inputs"),
    [(1, 16, 64), (3, 20, 200), (5, 33, 128), (16, 17, 72), (17, 40, 96), (33, 50, 136)],
)
def test_tiles(
    config: Any, dtype: torch.dtype, entry: Any, rows: int, outputs: int, inputs: int
) -> None:
    x, weight = product(rows, outputs, inputs, dtype)
    check(linear(config, entry), x, weight, torch.randn(outputs, dtype=dtype))
    check(linear(config, entry), x, weight, None)


@pytest.mark.parametrize("entry", [VECTORS[0], TILES[0], TILES[3]])
def test_rows_may_have_other_things_between_them(
    config: Any, dtype: torch.dtype, entry: Any
) -> None:
    x, weight = product(3, 20, 96, dtype)
    apart = torch.full((3, 200), torch.nan, dtype=dtype)
    apart[:, 8:104] = x
    check(linear(config, entry), apart[:, 8:104], weight, None)
    check(linear(config, entry), x.t().contiguous().t(), weight, None)
    check(linear(config, entry), x, weight.t().contiguous().t(), None)


@pytest.mark.parametrize("entry", [VECTORS[0], TILES[1], TILES[2]])
def test_a_row_does_not_depend_on_the_others(config: Any, dtype: torch.dtype, entry: Any) -> None:
    x, weight = product(4, 20, 200, dtype)
    operation = linear(config, entry)
    packed = operation.pack(weight, None)
    three = operation(x[1:], packed)
    assert torch.equal(operation(x, packed)[1:], three)
    x[1] = torch.nan
    assert torch.equal(operation(x[1:], packed)[1:], three[1:])


def test_nothing_past_the_weight_is_read(config: Any, dtype: torch.dtype) -> None:
    """Behind the last weight and the last row there are others that would spoil the sums."""
    x, weight = product(3, 5, 72, dtype)
    around = torch.full((8, 72), torch.nan, dtype=dtype)
    around[:5] = weight
    x_around = torch.full((6, 72), torch.nan, dtype=dtype)
    x_around[:3] = x
    for entry in (VECTORS[0], *TILES):
        check(linear(config, entry), x_around[:3], around[:5], None)


def test_the_rest_is_left_to_torch(config: Any, dtype: torch.dtype) -> None:
    x, weight = product(3, 5, 8, dtype)
    for operation, rows in (
        (linear(config, None), x),
        (linear(config, TILE), x[:0]),
        (TritonLinear(config), x[:1].expand(65, 8)),
    ):
        with pytest.raises(AssertionError, match="left to torch"):
            operation(rows, operation.pack(weight, None))


def test_it_serves_and_may_be_captured(config: Any, dtype: torch.dtype, device: Any) -> None:
    operation = TritonLinear(config)
    assert operation.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert operation.capturable()


@pytest.fixture
def table(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> LinearConfigs:
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    (tmp_path / "linear.json").write_text(
        """{
        "1_64_64": {"any": {"sm_80": {"OUTPUTS": 1}}},
        "8_64_64": {"any": {"sm_80": {}}},
        "16_64_64": {"any": {"sm_80": {"OUTPUTS": 3}}},
        "1_4096_64": {"any": {"sm_80": {"OUTPUTS": 4}, "sm_90": {"OUTPUTS": 6}}},
        "1_64_4096": {"any": {"sm_90": {"OUTPUTS": 5}}}
        }"""
    )
    monkeypatch.setattr(tables, "architecture", lambda device: "sm_80")
    return LinearConfigs()


@pytest.mark.parametrize(
    ("rows", "shape", "outputs"),
    [
        (1, (64, 64), 1),
        (2, (64, 64), None),
        (8, (64, 64), None),
        (9, (64, 64), 3),
        (16, (64, 64), 3),
        (17, (64, 64), None),
        (1, (7, 100), 1),
        (1, (100_000, 100), 4),
        (1, (1000, 64), 4),
        (1, (64, 1000), None),
    ],
)
def test_the_nearest_shape_decides(
    table: LinearConfigs, rows: int, shape: tuple[int, int], outputs: int | None
) -> None:
    weight = torch.empty(shape, dtype=torch.float16, device="meta")
    for _ in range(2):
        found = table.find(rows, weight)
        assert (found and found["OUTPUTS"]) == outputs
    assert table.find(rows, weight.float()) is None
