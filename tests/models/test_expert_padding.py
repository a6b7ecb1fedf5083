"""Tokens of padding go to nobody, and the choice is the kernels' where they offer it."""

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from jackfield.core.api.experts import Routing
from jackfield.core.api.kernel import Operations
from jackfield.core.api.model import ModelInputs, Shard
from jackfield.plugins.kernels.torch_ops.experts import TorchExperts
from jackfield.plugins.models.blocks.experts import ExpertMlp
from jackfield.plugins.models.blocks.linear_loader import LinearLoader
from jackfield.plugins.models.blocks.mixture import Mixture
from jackfield.plugins.models.blocks.routing import route
from jackfield.plugins.models.qwen3_moe import Qwen3Moe

HIDDEN, EXPERTS, TOP = 16, 5, 2
MIXTURE = Mixture(
    routing=Routing(num_experts=EXPERTS, top_k=TOP), width=12, layers=frozenset([0])
)
CONFIG: Mapping[str, Any] = {
    "vocab_size": 50, "hidden_size": HIDDEN, "intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "max_position_embeddings": 64, "num_experts": EXPERTS, "num_experts_per_tok": TOP,
    "moe_intermediate_size": 12, "mlp_only_layers": [0], "norm_topk_prob": True,
    "rope_theta": 10000.0,
}  # fmt: skip


class Spy(TorchExperts):
    """Remembers what it was given."""

    def __call__(self, x_TD: Tensor, ids_TK: Tensor, *rest: Any) -> Tensor:
        self.ids_TK = ids_TK
        return super().__call__(x_TD, ids_TK, *rest)


def operations(reference: ModuleType, spy: Spy, **more: Any) -> Operations:
    return replace(reference.operations(), experts=spy, **more)


def block(reference: ModuleType, ops: Operations, counts_E: Tensor | None) -> ExpertMlp:
    torch.manual_seed(0)
    name = "model.layers.0.mlp"
    shapes = {"gate": (EXPERTS, HIDDEN)}
    for expert in range(EXPERTS):
        shapes |= {f"experts.{expert}.{part}_proj": (12, HIDDEN) for part in ("gate", "up")}
        shapes[f"experts.{expert}.down_proj"] = (HIDDEN, 12)
    held = {f"{name}.{part}.weight": torch.randn(shape) for part, shape in shapes.items()}
    load = LinearLoader(ops.linear, Shard(), reference.DictWeights(held))
    return ExpertMlp(0, HIDDEN, MIXTURE, ops, load, counts_E)


def test_padding_goes_to_nobody(reference: ModuleType) -> None:
    spy, counts = Spy(), torch.zeros(EXPERTS, dtype=torch.int64)
    mlp = block(reference, operations(reference, spy), counts)
    x = torch.randn(4, HIDDEN)
    whole = mlp(x)
    assert counts.sum() == 4 * TOP and int(spy.ids_TK.min()) >= 0
    counts.zero_()
    found = mlp(x, torch.tensor([7, -1, 0, -1]))
    assert (spy.ids_TK < 0).tolist() == [[False] * TOP, [True] * TOP] * 2
    assert counts.sum() == 2 * TOP
    torch.testing.assert_close(found[[0, 2]], whole[[0, 2]])
    assert not found[[1, 3]].any()


def test_kernels_choose_if_they_can(reference: ModuleType) -> None:
    asked: list[Any] = []

    def choose(*given: Any) -> tuple[Tensor, Tensor]:
        asked.append(given)
        return route(*given)

    slots, x = torch.tensor([3, -1]), torch.randn(2, HIDDEN)
    spy = Spy()
    found = block(reference, operations(reference, spy, route=choose), None)(x, slots)
    [(logits, routing, bias, given)] = asked
    assert logits.shape == (2, EXPERTS) and routing == MIXTURE.routing and bias is None
    assert given is slots
    torch.testing.assert_close(found, block(reference, operations(reference, spy), None)(x, slots))


@pytest.mark.parametrize("padded", [True, False])
def test_a_model_tells_its_layers_what_is_padding(reference: ModuleType, padded: bool) -> None:
    spec = Qwen3Moe.describe(CONFIG)
    model = Qwen3Moe(CONFIG, operations(reference, Spy()), Shard(), Random())
    histogram = model.expert_histogram()
    assert histogram is not None and list(histogram.layers) == [1]
    assert histogram.counts_LE.shape == (1, EXPERTS) and not histogram.counts_LE.any()
    ids = torch.tensor([3, 4, 5])
    slots = torch.tensor([0, 1, -1]) if padded else None
    inputs = ModelInputs(ids, torch.arange(3), None, slots)
    model.forward(inputs, reference.GrowingCache(spec))
    assert int(histogram.counts_LE.sum()) == TOP * (2 if padded else 3)
    assert model.expert_histogram() is histogram


class Random:
    """Any weight."""

    def take(self, name: str, shape: tuple[int, ...], *split: Any) -> Tensor:
        return torch.randn(shape) * 0.3

    take_exact = take

    def has(self, name: str) -> bool:
        return False

    def ignore(self, pattern: str) -> None:
        pass
