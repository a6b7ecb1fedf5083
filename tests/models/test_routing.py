"""The choice of experts equals that of the reference implementation, and what it promises."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.mixtral.modeling_mixtral import MixtralTopKRouter
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeTopKRouter

from jackfield.plugins.models.blocks.routing import Chosen, Routing, route

HIDDEN, EXPERTS, TOP = 16, 12, 4
V2: dict[str, Any] = {
    "n_routed_experts": EXPERTS, "num_experts_per_tok": TOP, "hidden_size": HIDDEN,
    "routed_scaling_factor": 2.5, "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip
GROUPS = {"n_group": 4, "topk_group": 2}


def by_id(chosen: Chosen) -> tuple[Tensor, Tensor]:
    ids, order = chosen.ids_TK.sort(dim=1)
    return ids, chosen.weights_TK.gather(1, order)


def compare(router: Any, routing: Routing, bias: Tensor | None = None) -> None:
    torch.manual_seed(3)
    torch.nn.init.normal_(router.weight)
    hidden = torch.randn(200, HIDDEN)
    with torch.inference_mode():
        logits, weights, ids = router(hidden)
        found = route(logits, routing, bias)
    assert found.ids_TK.dtype is torch.int64 and found.weights_TK.dtype is torch.float32
    found_ids, found_weights = by_id(found)
    ids, wanted = by_id(Chosen(ids, weights))
    assert torch.equal(found_ids, ids)
    torch.testing.assert_close(found_weights, wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("normalize", [True, False])
def test_qwen(normalize: bool) -> None:
    config = CONFIG_MAPPING["qwen2_moe"](
        hidden_size=HIDDEN, num_experts=EXPERTS, num_experts_per_tok=TOP, norm_topk_prob=normalize
    )
    routing = Routing(num_experts=EXPERTS, top_k=TOP, normalize=normalize)
    compare(Qwen2MoeTopKRouter(config), routing)


def test_mixtral() -> None:
    config = CONFIG_MAPPING["mixtral"](
        hidden_size=HIDDEN, num_local_experts=EXPERTS, num_experts_per_tok=TOP
    )
    compare(MixtralTopKRouter(config), Routing(num_experts=EXPERTS, top_k=TOP))


@pytest.mark.parametrize("grouped", [True, False])
def test_softmax_of_groups(grouped: bool) -> None:
    method = "group_limited_greedy" if grouped else "greedy"
    config = CONFIG_MAPPING["deepseek_v2"](**V2, **GROUPS, topk_method=method)
    routing = Routing(
        num_experts=EXPERTS, top_k=TOP, normalize=False, scale=2.5,
        num_groups=4 if grouped else 1, chosen_groups=2 if grouped else 1,
    )  # fmt: skip
    compare(DeepseekV2TopkRouter(config), routing)


@pytest.mark.parametrize("normalize", [True, False])
def test_sigmoid_with_a_bias_for_the_choice(normalize: bool) -> None:
    config = CONFIG_MAPPING["deepseek_v3"](**V2, **GROUPS, norm_topk_prob=normalize)
    router = DeepseekV3TopkRouter(config)
    bias = torch.randn(EXPERTS, generator=torch.Generator().manual_seed(1))
    router.e_score_correction_bias.copy_(bias)
    routing = Routing(
        num_experts=EXPERTS, top_k=TOP, scoring="sigmoid", normalize=normalize, scale=2.5,
        num_groups=4, chosen_groups=2, group_score="top2sum",
    )  # fmt: skip
    compare(router, routing, bias)


def test_a_bias_moves_the_choice_but_not_the_weights() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    bias = torch.tensor([0.0, 0.0, 0.0, 10.0])
    chosen = route(logits, Routing(num_experts=4, top_k=2, normalize=False), bias)
    ids, weights = by_id(chosen)
    assert ids.tolist() == [[0, 3]]
    torch.testing.assert_close(weights[0], logits.softmax(1)[0, [0, 3]])


def test_experts_of_other_groups_are_never_chosen() -> None:
    """Even if their own worth is the largest but one, and all others' below 0."""
    logits = torch.tensor([[9.0, -9.0, 8.0, 7.0]])
    bias = torch.full((4,), -5.0)
    routing = Routing(
        num_experts=4, top_k=2, scoring="sigmoid", num_groups=2, group_score="max"
    )
    assert by_id(route(logits, routing, bias))[0].tolist() == [[0, 1]]


def test_scores_that_are_all_zero_give_weights_that_are_numbers() -> None:
    logits = torch.full((1, 4), -200.0)
    chosen = route(logits, Routing(num_experts=4, top_k=2, scoring="sigmoid"))
    assert chosen.weights_TK.tolist() == [[0.0, 0.0]]


def test_half_types_are_scored_in_float32() -> None:
    logits = torch.randn(50, 8).bfloat16()
    routing = Routing(num_experts=8, top_k=2)
    for found, wanted in zip(route(logits, routing), route(logits.float(), routing), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_nothing_on_the_host_depends_on_the_scores(scoring: Any) -> None:
    """Tensors without content would stop whatever wants to look at it."""
    routing = Routing(
        num_experts=8, top_k=2, scoring=scoring, num_groups=4, chosen_groups=2,
        group_score="top2sum",
    )  # fmt: skip
    chosen = route(torch.empty(5, 8, device="meta"), routing, torch.empty(8, device="meta"))
    assert chosen.ids_TK.shape == chosen.weights_TK.shape == (5, 2)
