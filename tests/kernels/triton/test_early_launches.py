"""Launches that begin early, in CUDA graphs, behind what they must wait for."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.plugins.kernels.triton.rms_norm import TritonRmsNorm
from jackfield.plugins.kernels.triton.silu_mul import TritonSiluMul
from jackfield.plugins.kernels.triton.support import TritonConfig

pytestmark = pytest.mark.gpu
WIDTH, REPLAYS, EPS = 4096, 60, 1e-6
FRONTS: dict[str, Callable[[Tensor], Tensor]] = {
    "a kernel of torch": lambda x: x + 0,
    "a copy of memory": torch.clone,
    "an early launch": TritonSiluMul(TritonConfig()),
}


@pytest.mark.parametrize("rows", [1, 64, 8192])
@pytest.mark.parametrize("front", FRONTS)
def test_it_waits_for_what_is_in_front(front: str, rows: int) -> None:
    """Whoever did not would read what the replay before has left."""
    norm, before = TritonRmsNorm(TritonConfig()), FRONTS[front]
    x = torch.zeros(rows, WIDTH, dtype=torch.bfloat16, device="cuda")
    weight = torch.ones(x.shape[1] // (1 + ("early" in front)), device="cuda").bfloat16()
    norm(before(x), weight, EPS)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = norm(before(x), weight, EPS)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(REPLAYS):
        x.normal_()
        wanted = norm(before(x), weight, EPS)
        graph.replay()
        wrong += (out != wanted).any()
    assert int(wrong) == 0
