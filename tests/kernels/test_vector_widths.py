"""The C kernels compiled for shorter vectors than this machine's give the same results."""

import platform
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from jackfield.core.api.kernel import SampleBatch
from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.cpu import CpuKernels

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the flags are those of x86-64 compilers"
)
WIDTHS = {
    "8 lanes": "cc -mno-avx512f",
    "4 lanes": "cc -mno-avx512f -mno-avx2 -mno-avx -mno-fma",
}


@pytest.fixture(scope="module", params=WIDTHS)
def narrow(request: pytest.FixtureRequest, kernel_cache: None) -> Mapping[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", WIDTHS[request.param])
        operations = CpuKernels(PolicyConfig()).operations()
        operations["linear"].pack(torch.ones(1, 1), None)
    return operations


@pytest.fixture(scope="module")
def native(kernel_cache: None) -> Mapping[str, Any]:
    return CpuKernels(PolicyConfig()).operations()


def test_products(narrow: Mapping[str, Any]) -> None:
    linear = narrow["linear"]
    for half in (True, False):
        weight = torch.randn(45, 67)
        weight = weight.bfloat16().float() if half else weight
        packed = linear.pack(weight, None)
        for rows in (*range(1, 14), 100):
            x = torch.randn(rows, 67)
            expected = (x.double() @ weight.double().T).float()
            torch.testing.assert_close(linear(x, packed), expected, rtol=1e-5, atol=1e-4)


def test_norms_and_gates(narrow: Mapping[str, Any], native: Mapping[str, Any]) -> None:
    x, weight = torch.randn(5, 70), torch.randn(70)
    for name, arguments in (("rms_norm", (x, weight, 1e-5)), ("silu_mul", (x,))):
        torch.testing.assert_close(narrow[name](*arguments), native[name](*arguments))


def test_draws(narrow: Mapping[str, Any], native: Mapping[str, Any]) -> None:
    rows = 200
    logits = torch.randn(rows, 1000) * 3
    batch = SampleBatch(
        temperature_R=torch.full((rows,), 0.9),
        top_k_R=torch.full((rows,), 40, dtype=torch.int32),
        top_p_R=torch.full((rows,), 0.9),
        min_p_R=torch.zeros(rows),
        seeds_R=torch.arange(rows),
        positions_R=torch.full((rows,), 7),
        all_greedy=False,
        filtered=True,
    )
    one = narrow["sample"](logits.clone(), batch)
    other = native["sample"](logits.clone(), batch)
    assert (one == other).float().mean() > 0.98, "they may differ at a boundary only"
