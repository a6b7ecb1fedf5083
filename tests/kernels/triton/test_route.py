"""The choice of experts against torch's, which equals that of the reference implementations."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.core.api.experts import Routing
from jackfield.core.api.kernel import OpSpec
from jackfield.plugins.kernels.triton.route import TritonRoute
from jackfield.plugins.models.blocks.routing import Chosen, route

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

GROUPED = Routing(
    num_experts=16, top_k=4, scoring="sigmoid", scale=2.5, num_groups=4, chosen_groups=2,
    group_score="top2sum",
)  # fmt: skip
ROUTINGS = {
    "qwen": Routing(num_experts=128, top_k=8),
    "v2 lite": Routing(num_experts=64, top_k=6, normalize=False, scale=1.5),
    "mixtral": Routing(num_experts=8, top_k=2),
    "one of few": Routing(num_experts=5, top_k=1),
    "all of few": Routing(num_experts=6, top_k=6),
    "v2": Routing(num_experts=160, top_k=6, normalize=False, num_groups=8, chosen_groups=3),
    "v3": replace(GROUPED, num_experts=256, top_k=8, num_groups=8, chosen_groups=4),
    "three groups": replace(GROUPED, num_experts=15, num_groups=3),
}


def by_id(chosen: tuple[Tensor, Tensor]) -> Chosen:
    ids, order = chosen[0].sort(dim=1)
    return Chosen(ids, chosen[1].gather(1, order))


def compare(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> None:
    assert found[0].dtype is torch.int64 and found[1].dtype is torch.float32
    ids, weights = by_id(found)
    wanted_ids, wanted_weights = by_id(wanted)
    assert torch.equal(ids, wanted_ids)
    torch.testing.assert_close(weights, wanted_weights, atol=1e-6, rtol=1e-5)


@pytest.mark.few_combinations
@pytest.mark.parametrize("name", ROUTINGS)
@pytest.mark.parametrize("tokens", [1, 5])
def test_as_torch_chooses(config: Any, dtype: torch.dtype, name: str, tokens: int) -> None:
    routing = ROUTINGS[name]
    for biased in (False, True):
        # No two logits are the same, whatever the type.
        order = torch.rand(tokens, routing.num_experts).argsort(1)
        logits = ((order - routing.num_experts // 2) / 16).to(dtype)
        bias = torch.randn(routing.num_experts) if biased else None
        compare(TritonRoute(config)(logits, routing, bias), route(logits, routing, bias))


def test_rows_may_have_other_things_between_them(config: Any) -> None:
    routing = ROUTINGS["mixtral"]
    apart = torch.full((3, 20), torch.nan)
    apart[:, 4:12] = torch.randn(3, 8)
    for logits in (apart[:, 4:12], apart[:, 4:12].t().contiguous().t()):
        before = logits.clone()
        compare(TritonRoute(config)(logits, routing), route(logits.contiguous(), routing))
        assert torch.equal(logits, before)


def test_padding_goes_to_nobody(config: Any) -> None:
    logits, slots = torch.randn(4, 8), torch.tensor([5, -1, 0, -1])
    ids, weights = TritonRoute(config)(logits, ROUTINGS["mixtral"], None, slots)
    wanted = route(logits, ROUTINGS["mixtral"], None, slots)
    compare((ids, weights), wanted)
    assert (ids < 0).all(1).tolist() == [False, True, False, True]


def test_the_first_of_those_that_are_worth_the_same(config: Any) -> None:
    ids, weights = TritonRoute(config)(torch.zeros(1, 8), Routing(num_experts=8, top_k=3))
    assert ids.tolist() == [[0, 1, 2]]
    torch.testing.assert_close(weights, torch.full((1, 3), 1 / 3))
    ids, _ = TritonRoute(config)(torch.zeros(1, 16), GROUPED)
    assert ids.tolist() == [[0, 1, 2, 3]]


def test_scores_that_are_all_zero_give_weights_that_are_numbers(config: Any) -> None:
    logits = torch.full((1, 6), -200.0)
    ids, weights = TritonRoute(config)(logits, replace(ROUTINGS["all of few"], scoring="sigmoid"))
    assert ids.tolist() == [[0, 1, 2, 3, 4, 5]] and not weights.any()


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
@pytest.mark.parametrize("routing", [ROUTINGS["mixtral"], ROUTINGS["one of few"], GROUPED], ids=str)
def test_what_is_no_number_still_names_experts(config: Any, routing: Routing) -> None:
    """Each once, and the weights tell that something is wrong."""
    logits = torch.full((3, routing.num_experts), torch.nan)
    logits[1:] = torch.randn(2, routing.num_experts)
    logits[1, 3] = torch.nan
    bias = torch.zeros(routing.num_experts)
    ids, weights = TritonRoute(config)(logits, routing, bias)
    for row in ids.tolist():
        assert len(set(row)) == routing.top_k and set(row) <= set(range(routing.num_experts))
    assert bool(weights[0].isnan().all()) and not weights[2].isnan().any()


def test_experts_of_other_groups_are_never_chosen(config: Any) -> None:
    """Even if their own worth is the largest but one, and all others' below 0."""
    logits = torch.tensor([[9.0, -9.0, 8.0, 7.0]])
    bias = torch.full((4,), -5.0)
    routing = Routing(num_experts=4, top_k=2, scoring="sigmoid", num_groups=2)
    ids, _ = TritonRoute(config)(logits, routing, bias)
    assert sorted(ids[0].tolist()) == [0, 1]


def test_no_tokens(config: Any, dtype: torch.dtype, device: Any) -> None:
    made = TritonRoute(config)
    ids, weights = made(torch.zeros(0, 8), ROUTINGS["mixtral"])
    assert ids.shape == weights.shape == (0, 2)
    assert made.unsupported(OpSpec(dtype, 64, 16, 100), device) == []
    assert made.capturable()
