"""Experts of the torch kernels against a sum in float64, by each of the ways to make products."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from jackfield.core.api.kernel import OPTIONAL_OPERATIONS
from jackfield.core.api.scheduler import PolicyConfig
from jackfield.plugins.kernels.torch_ops import TorchKernels, experts
from jackfield.plugins.kernels.torch_ops.experts import (
    Chosen,
    TorchExperts,
    Weights,
    by_all,
    in_groups,
    one_by_one,
)

Way = Callable[[Tensor, Chosen, Weights], Tensor]
EXPERTS, HIDDEN, WIDTH, TOP = 6, 32, 24, 3
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def operation(x: Tensor, chosen: Chosen, weights: Weights) -> Tensor:
    return TorchExperts()(x, *chosen, *weights)


WAYS = [operation, one_by_one, in_groups, by_all]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


def skip_others_groups(way: Way, dtype: torch.dtype, device: torch.device) -> None:
    if way is in_groups and device.type == "cuda" and dtype is not torch.bfloat16:
        pytest.skip("not served by grouped products on a GPU")


def make_weights(dtype: torch.dtype, device: torch.device) -> Weights:
    gate_up = torch.randn(EXPERTS, 2 * WIDTH, HIDDEN) * 0.3
    down = torch.randn(EXPERTS, HIDDEN, WIDTH) * 0.3
    return Weights(gate_up.to(device, dtype), down.to(device, dtype))


def choices(tokens: int, device: torch.device) -> dict[str, Chosen]:
    """All over, all tokens to the same experts, none to the first and the last, some to nobody."""
    ids = {
        "all over": torch.rand(tokens, EXPERTS).argsort(1)[:, :TOP],
        "the same": torch.tensor([4, 0, 2]).expand(tokens, TOP).contiguous(),
        "not at the ends": 1 + torch.rand(tokens, EXPERTS - 2).argsort(1)[:, :TOP],
        "nobody": torch.rand(tokens, EXPERTS).argsort(1)[:, :TOP],
    }
    ids["nobody"][tokens // 2 :: 3] = -1
    ids["nobody"][0, 1] = -1
    return {
        name: Chosen(some.to(device), torch.rand(tokens, TOP).to(device))
        for name, some in ids.items()
    }


def truth(x: Tensor, chosen: Chosen, weights: Weights) -> Tensor:
    wide = [part.double() for part in (x, chosen.weights_TK, *weights)]
    x, share, gate_up, down = wide
    out = torch.zeros_like(x)
    for token, row in enumerate(chosen.ids_TK.tolist()):
        for place, expert in enumerate(row):
            if expert < 0:
                continue
            gate, up = (gate_up[expert] @ x[token]).chunk(2)
            out[token] += share[token, place] * (down[expert] @ (silu(gate) * up))
    return out


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 7, 65])
def test_sum_of_the_chosen(
    way: Way, dtype: torch.dtype, tokens: int, device: torch.device
) -> None:
    skip_others_groups(way, dtype, device)
    weights = make_weights(dtype, device)
    x = torch.randn(tokens, HIDDEN).to(device, dtype)
    before = x.clone()
    close = 1e-6 if dtype is torch.float32 else 0.015
    for name, chosen in choices(tokens, device).items():
        out = way(x, chosen, weights)
        assert out.dtype is dtype and out.shape == x.shape, name
        wanted = truth(x, chosen, weights)
        distance = (out.double() - wanted).norm(dim=1) / wanted.norm(dim=1).clamp(min=1e-6)
        assert float(distance.max()) < close, name
    assert torch.equal(x, before)


def test_what_each_expert_gets_is_counted(device: torch.device) -> None:
    weights, x = make_weights(torch.float32, device), torch.randn(65, HIDDEN, device=device)
    counts = torch.arange(EXPERTS, device=device)
    for chosen in choices(65, device).values():
        before = counts.clone()
        TorchExperts()(x, *chosen, *weights, counts)
        ids = chosen.ids_TK.flatten().tolist()
        assert (counts - before).tolist() == [ids.count(expert) for expert in range(EXPERTS)]
    nobody = Chosen(torch.full((2, TOP), -1, device=device), torch.ones(2, TOP, device=device))
    before = counts.clone()
    assert not TorchExperts()(x[:2], *nobody, *weights, counts).any()
    assert torch.equal(counts, before)


@pytest.mark.parametrize("way", WAYS)
def test_nobody_has_no_part(way: Way, device: torch.device) -> None:
    """Whatever its weight is, and whatever lies where it is not. Nor has an id that is none: where
    launches are left out at a start ids are whatever lay in their memory."""
    skip_others_groups(way, torch.float32, device)
    weights = make_weights(torch.float32, device)
    x = torch.randn(4, HIDDEN, device=device)
    x[2] = torch.nan
    ids = torch.tensor([[-1, 3, -7], [0, 1, 2], [0, 4, 5], [1 << 40, -1, EXPERTS]], device=device)
    shares = torch.ones(4, TOP, device=device)
    shares[0, 0] = torch.nan
    only = Chosen(ids.where((ids >= 0) & (ids < EXPERTS), -1), shares)
    wanted, found = truth(x, only, weights), way(x, Chosen(ids, shares), weights)
    assert bool(found[2].isnan().all()) and not found[3].any()
    torch.testing.assert_close(found[:2].double(), wanted[:2], atol=1e-5, rtol=1e-5)


def test_no_tokens(device: torch.device) -> None:
    weights = make_weights(torch.float32, device)
    nothing = Chosen(
        torch.zeros(0, TOP, dtype=torch.int64, device=device), torch.zeros(0, TOP, device=device)
    )
    out = operation(torch.zeros(0, HIDDEN, device=device), nothing, weights)
    assert out.shape == (0, HIDDEN)


@pytest.mark.parametrize("way", WAYS)
def test_experts_that_were_not_chosen_have_no_part(way: Way, device: torch.device) -> None:
    """Nor has a token that is no number any in the others."""
    skip_others_groups(way, torch.float32, device)
    weights = make_weights(torch.float32, device)
    weights.gate_up_E2FD[5].fill_(float("inf"))
    weights.down_EDF[0].fill_(float("nan"))
    x = torch.randn(9, HIDDEN, device=device)
    chosen = choices(9, device)["not at the ends"]
    wanted = truth(x, chosen, weights)
    x[3].fill_(float("nan"))
    found = way(x, chosen, weights)
    assert bool(found[3].isnan().all())
    others = torch.tensor([0, 1, 2, 4, 5, 6, 7, 8], device=device)
    torch.testing.assert_close(found[others].double(), wanted[others], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("way", [one_by_one, by_all])
def test_large_batches_in_parts(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = make_weights(torch.float32, torch.device("cpu"))
    x = torch.randn(50, HIDDEN)
    chosen = choices(50, torch.device("cpu"))["all over"]
    whole = way(x, chosen, weights)
    monkeypatch.setattr(experts, "ROWS", 7 * EXPERTS)
    monkeypatch.setattr(experts, "SUMMED", 11 * TOP * HIDDEN)
    torch.testing.assert_close(way(x, chosen, weights), whole)


def test_products_are_summed_in_float32() -> None:
    """Of three contributions the small ones would be lost if they were rounded one by one."""
    gate_up = torch.zeros(3, 2, 1, dtype=torch.bfloat16)
    gate_up[:, 0], gate_up[:, 1] = 20.0, torch.tensor([256.0, 0.55, 0.55])[:, None]
    down = torch.full((3, 1, 1), 0.05, dtype=torch.bfloat16)
    x = torch.ones(1, 1, dtype=torch.bfloat16)
    chosen = Chosen(torch.tensor([[0, 1, 2]]), torch.ones(1, 3))
    weights = Weights(gate_up, down)
    exact = truth(x, chosen, weights)
    assert operation(x, chosen, weights).item() == exact.bfloat16().item() != 256.0


@pytest.mark.parametrize(
    ("way", "dtype"),
    [(in_groups, torch.bfloat16), (by_all, torch.bfloat16), (by_all, torch.float32)],
)
def test_nothing_on_the_host_depends_on_the_choice(way: Way, dtype: torch.dtype) -> None:
    """Tensors without content would stop whatever wants to look at it, as a graph would."""
    meta = torch.device("meta")
    chosen = Chosen(*(part.to(meta) for part in choices(9, torch.device("cpu"))["all over"]))
    weights = Weights(*(part.to(meta) for part in make_weights(dtype, torch.device("cpu"))))
    out = way(torch.empty(9, HIDDEN, device=meta, dtype=dtype), chosen, weights)
    assert out.shape == (9, HIDDEN) and out.dtype is dtype


def test_the_operation_is_optional_and_served_everywhere() -> None:
    assert "experts" in OPTIONAL_OPERATIONS
    serves: Any = TorchKernels(PolicyConfig()).operations()["experts"]
    assert serves.unsupported(None, torch.device("cpu")) == []
    assert serves.capturable()
