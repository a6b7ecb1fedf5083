"""Experts in plain torch: tokens are sorted by expert, and each makes its products of its own.

Shape suffixes beside those of the contract: A assignments, one per token and expert of it, P a part
of the tokens.
"""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm, linear, silu

from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere

FEW = 512
"""Tokens up to which every expert multiplies all of them, where nothing else spares the device a
wait for the counts: graphs hold no more."""
ROWS = 1 << 15
"""Rows of all experts that are multiplied so at once."""
SUMMED = 1 << 24
"""Entries that are weighted and summed in float32 at once."""
ALIGNED = 16
"""Bytes: rows of grouped products begin at multiples."""
NOBODYS = -1
"""In the place of a row."""


class Weights(NamedTuple):
    """Gate and up of all experts, and down."""

    gate_up_E2FD: Tensor
    down_EDF: Tensor


class Chosen(NamedTuple):
    """Each token's experts, and their weights."""

    ids_TK: Tensor
    weights_TK: Tensor


class Order(NamedTuple):
    """Assignments sorted by expert, nobody's last: the tokens of all, where each went, -1 for
    nobody's, and where each expert's end."""

    token_A: Tensor
    place_TK: Tensor
    ends_E: Tensor


class TorchExperts(Everywhere):
    """On a GPU, grouped products where there are some for the type. It never waits for a GPU but
    for the counts of more than 512 tokens without grouped products; no graph holds so many."""

    def __call__(
        self,
        x_TD: Tensor,
        ids_TK: Tensor,
        weights_TK: Tensor,
        gate_up_E2FD: Tensor,
        down_EDF: Tensor,
        counts_E: Tensor | None = None,
    ) -> Tensor:
        chosen, experts = Chosen(ids_TK, weights_TK), Weights(gate_up_E2FD, down_EDF)
        if len(x_TD) == 0:
            return torch.empty_like(x_TD)
        if counts_E is not None:
            count_tokens(ids_TK, counts_E)
        if _have_groups(experts):
            return in_groups(x_TD, chosen, experts)
        if x_TD.device.type != "cpu" and len(x_TD) <= FEW:
            return by_all(x_TD, chosen, experts)
        return one_by_one(x_TD, chosen, experts)


def one_by_one(x_TD: Tensor, chosen: Chosen, experts: Weights) -> Tensor:
    """One product after the other, of experts that have tokens. The host must know the counts."""
    order = sort_by_expert(chosen.ids_TK, len(experts.down_EDF))
    x_AD = x_TD.index_select(0, order.token_A)
    made_AD = torch.empty_like(x_AD)
    ends = order.ends_E.tolist()
    for expert, (begin, end) in enumerate(pairwise([0, *ends])):
        if begin < end:
            hidden = gated(linear(x_AD[begin:end], experts.gate_up_E2FD[expert]))
            made_AD[begin:end] = linear(hidden, experts.down_EDF[expert])
    return weighted_sum(made_AD, order.place_TK, chosen.weights_TK)


def in_groups(x_TD: Tensor, chosen: Chosen, experts: Weights) -> Tensor:
    """Products of groups whose ends only the device knows."""
    order = sort_by_expert(chosen.ids_TK, len(experts.down_EDF))
    x_AD = x_TD.index_select(0, order.token_A)
    hidden_AF = gated(grouped_mm(x_AD, experts.gate_up_E2FD.mT, offs=order.ends_E))
    made_AD = grouped_mm(hidden_AF, experts.down_EDF.mT, offs=order.ends_E)
    return weighted_sum(made_AD, order.place_TK, chosen.weights_TK)


def by_all(x_TD: Tensor, chosen: Chosen, experts: Weights) -> Tensor:
    """Every expert multiplies every token; what was not chosen is never looked at."""
    parts = _parts(len(x_TD), ROWS // len(experts.down_EDF))
    made = [_part_by_all(x_TD[p], Chosen(*(c[p] for c in chosen)), experts) for p in parts]
    return torch.cat(made)


def _part_by_all(x_PD: Tensor, chosen: Chosen, experts: Weights) -> Tensor:
    tokens, count = len(x_PD), len(experts.down_EDF)
    gate_up_EP2F = torch.bmm(x_PD.expand(count, -1, -1), experts.gate_up_E2FD.mT)
    made_EPD = torch.bmm(gated(gate_up_EP2F), experts.down_EDF.mT)
    token_P1 = torch.arange(tokens, device=x_PD.device).unsqueeze(1)
    known_PK = _known(chosen.ids_TK, count)
    place_PK = (known_PK * tokens + token_P1).masked_fill_(known_PK == count, NOBODYS)
    return weighted_sum(made_EPD.flatten(0, 1), place_PK, chosen.weights_TK)


def gated(gate_up_A2F: Tensor) -> Tensor:
    """`silu(gate) * up`."""
    gate, up = gate_up_A2F.chunk(2, dim=-1)
    return silu(gate).mul_(up)


def _have_groups(experts: Weights) -> bool:
    """Whether torch has grouped products. Of others it makes one after the other, and waits for
    the ends of the groups."""
    down_EDF = experts.down_EDF
    if down_EDF.device.type != "cuda" or down_EDF.dtype is not torch.bfloat16:
        return False
    rows = (size * down_EDF.itemsize for size in down_EDF.shape[1:])
    capable = torch.cuda.get_device_capability(down_EDF.device)[0] in (9, 10)
    return capable and all(size % ALIGNED == 0 for size in rows)


def _known(ids_TK: Tensor, count: int) -> Tensor:
    """Nobody's are behind those of all experts."""
    return ids_TK.where((ids_TK >= 0) & (ids_TK < count), count)


def count_tokens(ids_TK: Tensor, counts_E: Tensor) -> None:
    """Add to each expert's."""
    known_A = _known(ids_TK, len(counts_E)).flatten()
    counts_E1 = counts_E.new_zeros(len(counts_E) + 1)
    counts_E += counts_E1.scatter_add_(0, known_A, torch.ones_like(known_A))[:-1]


def sort_by_expert(ids_TK: Tensor, count: int) -> Order:
    """The assignments of a step; count: of experts."""
    expert_A, from_A = _known(ids_TK, count).flatten().sort(stable=True)
    place_A = torch.empty_like(from_A)
    place_A[from_A] = torch.arange(len(from_A), device=from_A.device)
    id_E = torch.arange(count, device=from_A.device)
    ends_E = torch.searchsorted(expert_A, id_E, right=True, out_int32=True)
    nobodys_A = place_A >= ends_E[-1]
    place_TK = place_A.masked_fill_(nobodys_A, NOBODYS).view(ids_TK.shape)
    return Order(from_A // ids_TK.shape[1], place_TK, ends_E)


def weighted_sum(made_AD: Tensor, place_TK: Tensor, weights_TK: Tensor) -> Tensor:
    """The weighted sum of each token's rows."""
    tokens, top_k = place_TK.shape
    width = made_AD.shape[1]
    out_TD = made_AD.new_empty((tokens, width))
    for part in _parts(tokens, SUMMED // (top_k * width)):
        place_PK1 = place_TK[part].unsqueeze(2)
        rows_PKD = made_AD[place_TK[part].clamp(min=0)]
        products_PKD = rows_PKD * weights_TK[part].unsqueeze(2)
        out_TD[part] = products_PKD.masked_fill_(place_PK1 < 0, 0.0).sum(1)
    return out_TD


def _parts(tokens: int, most: int) -> list[slice]:
    """Of at most so many tokens each, and of one in any case."""
    step = max(most, 1)
    return [slice(begin, begin + step) for begin in range(0, tokens, step)]
