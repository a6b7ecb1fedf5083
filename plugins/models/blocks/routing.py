"""Which experts a token goes to, and how much each of them counts.

Shape suffixes: T tokens of the step, E experts, G groups of experts, K experts of a token.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.experts import Routing as Routing

NOBODY = -1
"""In the place of an expert's id."""
TINY = 1e-20
"""Keeps a sum of weights that are all 0 from dividing by 0."""


class Chosen(NamedTuple):
    """The experts of each token (int64), in no order, and their weights (float32)."""

    ids_TK: Tensor
    weights_TK: Tensor


def route(
    logits_TE: Tensor,
    routing: Routing,
    bias_E: Tensor | None = None,
    slots_T: Tensor | None = None,
) -> Chosen:
    """What the operation `route` does, in torch. Never waits for the device, and no shape depends
    on what is chosen."""
    scores_TE = _scores(logits_TE.float(), routing)
    worth_TE = scores_TE if bias_E is None else scores_TE + bias_E.float()
    if routing.num_groups > 1:
        worth_TE = _inside_best_groups(worth_TE, routing)
    ids_TK = worth_TE.topk(routing.top_k, dim=-1, sorted=False).indices
    weights_TK = scores_TE.gather(1, ids_TK)
    if routing.normalize:
        weights_TK = weights_TK / (weights_TK.sum(-1, keepdim=True) + TINY)
    if slots_T is not None:
        ids_TK = ids_TK.masked_fill(slots_T.unsqueeze(1) < 0, NOBODY)
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
