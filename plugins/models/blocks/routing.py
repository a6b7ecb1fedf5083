"""Which experts a token goes to, and how much each of them counts.

Shape suffixes: T tokens of the step, E experts, G groups of experts, K experts of a token.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

TINY = 1e-20
"""Keeps a sum of weights that are all 0 from dividing by 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How a model chooses among its experts.

    scoring: how logits become scores, each between 0 and 1. normalize: whether the weights of a
    token's experts are divided by their sum; then all are multiplied with `scale`. With more than
    one group of neighbours, only the experts of the best `chosen_groups` can be chosen; a group is
    worth its best score, or the sum of its two best.
    """

    num_experts: int
    top_k: int
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    normalize: bool = True
    scale: float = 1.0
    num_groups: int = 1
    chosen_groups: int = 1
    group_score: Literal["max", "top2sum"] = "max"


class Chosen(NamedTuple):
    """The experts of each token (int64), in no order, and their weights (float32)."""

    ids_TK: Tensor
    weights_TK: Tensor


def route(logits_TE: Tensor, routing: Routing, bias_E: Tensor | None = None) -> Chosen:
    """Choose. bias: added to the scores for the choice alone, not for the weights.

    Never waits for the device, and no shape depends on what is chosen.
    """
    scores_TE = _scores(logits_TE.float(), routing)
    worth_TE = scores_TE if bias_E is None else scores_TE + bias_E.float()
    if routing.num_groups > 1:
        worth_TE = _inside_best_groups(worth_TE, routing)
    ids_TK = worth_TE.topk(routing.top_k, dim=-1, sorted=False).indices
    weights_TK = scores_TE.gather(1, ids_TK)
    if routing.normalize:
        weights_TK = weights_TK / (weights_TK.sum(-1, keepdim=True) + TINY)
    return Chosen(ids_TK, weights_TK if routing.scale == 1.0 else weights_TK * routing.scale)


def _scores(logits_TE: Tensor, routing: Routing) -> Tensor:
    if routing.scoring == "sigmoid":
        return logits_TE.sigmoid()
    return logits_TE.softmax(-1)


def _inside_best_groups(worth_TE: Tensor, routing: Routing) -> Tensor:
    """Experts of other groups are worth less than any."""
    worth_TGE = worth_TE.view(len(worth_TE), routing.num_groups, -1)
    if routing.group_score == "max":
        worth_TG = worth_TGE.amax(-1)
    else:
        worth_TG = worth_TGE.topk(2, dim=-1).values.sum(-1)
    best_TG = worth_TG.topk(routing.chosen_groups, dim=-1, sorted=False).indices
    inside_TG = torch.zeros_like(worth_TG, dtype=torch.bool).scatter_(1, best_TG, True)
    return worth_TGE.masked_fill(~inside_TG.unsqueeze(-1), float("-inf")).flatten(1)
