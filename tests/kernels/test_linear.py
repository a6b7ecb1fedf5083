"""Dense products of every kernel plugin against float64."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.cpu import CpuKernels

ROWS = [1, 2, 5, 6, 7, 11, 12, 13, 16, 24, 25, 300]
SHAPES = [(1, 1), (31, 5), (32, 64), (33, 577), (100, 130), (576, 96)]


def weight_of(outputs: int, inputs: int, dtype: torch.dtype, half: bool) -> torch.Tensor:
    weight = torch.randn(outputs, inputs)
    return (weight.bfloat16() if half else weight).to(dtype)


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equals_float64(
    operations: Mapping[str, Any], dtype: torch.dtype, shape: tuple[int, int], half: bool
) -> None:
    linear, (outputs, inputs) = operations["linear"], shape
    weight = weight_of(outputs, inputs, dtype, half)
    bias = torch.randn(outputs).to(dtype)
    packed, plain = linear.pack(weight, bias), linear.pack(weight, None)
    tolerance = 1e-5 if dtype is torch.float32 else 1e-2
    for rows in ROWS:
        x = torch.randn(rows, inputs + 3).to(dtype)[:, 1 : inputs + 1]
        expected = x.double() @ weight.double().T
        scale = float(inputs) ** 0.5
        for result, wanted in (
            (linear(x, packed), expected + bias.double()), (linear(x, plain), expected),
        ):  # fmt: skip
            assert result.dtype is dtype and result.shape == (rows, outputs)
            assert (result.double() - wanted).abs().max() < tolerance * (scale + wanted.abs().max())


def test_pack_leaves_the_weight_alone(operations: Mapping[str, Any]) -> None:
    weight = torch.randn(40, 24).bfloat16().float()
    before = weight.clone()
    operations["linear"].pack(weight, None)
    assert torch.equal(weight, before)


@pytest.fixture(scope="module")
def cpu_linear(kernel_cache: None) -> Any:
    return CpuKernels(PolicyConfig()).operations()["linear"]


def test_exact_bfloat16_weights_take_half_the_bytes(cpu_linear: Any) -> None:
    exact = torch.randn(64, 48).bfloat16().float()
    odd = exact.clone()
    odd[3, 7] = 1 + 2**-20
    assert cpu_linear.pack(exact, None).words.nbytes * 2 == cpu_linear.pack(odd, None).words.nbytes
    x = torch.randn(9, 48)
    columns = [column for column in range(64) if column != 3]
    both = [cpu_linear(x, cpu_linear.pack(weight, None))[:, columns] for weight in (exact, odd)]
    assert torch.equal(*both)


def test_special_values_survive_packing(cpu_linear: Any) -> None:
    values = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 2.0**-133, -3.0e38])
    weight = values.bfloat16().float().unsqueeze(1)
    result = cpu_linear(torch.ones(1, 1), cpu_linear.pack(weight, None))[0]
    assert torch.equal(result, weight[:, 0])
    broken = cpu_linear(torch.ones(1, 1), cpu_linear.pack(torch.full((2, 1), torch.nan), None))
    assert broken.isnan().all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_does_not_depend_on_the_others(cpu_linear: Any, threads: int) -> None:
    torch.set_num_threads(threads)
    packed = cpu_linear.pack(torch.randn(70, 130), torch.randn(70))
    x = torch.randn(57, 130)
    together = cpu_linear(x, packed)
    for rows in (1, 3, 12, 13, 30):
        assert torch.equal(cpu_linear(x[:rows], packed), together[:rows])
