"""Sampling: greedy, or an inverse CDF at one uniform number per row.

Filters in this order: temperature, min_p, top_k, top_p, each on the renormalised result of those
before. top_p keeps the smallest set that reaches it, in the order of (logit, then lowest id). The
CDF runs over what is kept in the order of ids, so the draw depends on the kept set alone.

Shape suffixes beside those of the contract: W candidates of a row, highest logit first.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import SampleBatch
from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere
from jackfield.plugins.kernels.torch_ops.uniform import uniform


class TorchSample(Everywhere):
    """Rows are treated by what they ask for; no result depends on the other rows."""

    def capturable(self) -> bool:
        return False

    def __call__(self, logits_RV: Tensor, batch: SampleBatch) -> Tensor:
        logits_RV = logits_RV.float()
        tokens_R = self._tokens(logits_RV, batch)
        unsound_R = logits_RV.gather(1, tokens_R.unsqueeze(1)).isnan().squeeze(1)
        return torch.where(unsound_R, -1 - tokens_R, tokens_R)

    def _tokens(self, logits_RV: Tensor, batch: SampleBatch) -> Tensor:
        if batch.all_greedy:
            return logits_RV.argmax(-1)
        greedy, plain, filtered = _kinds(batch)
        if not greedy and not filtered:
            return _draw_plain(logits_RV, _Rows.of(batch))
        tokens = torch.empty(len(logits_RV), dtype=torch.int64, device=logits_RV.device)
        if greedy:
            tokens[greedy] = logits_RV[greedy].argmax(-1)
        if plain:
            tokens[plain] = _draw_plain(logits_RV[plain], _Rows.of(batch, plain))
        if filtered:
            tokens[filtered] = _draw_filtered(logits_RV[filtered], _Rows.of(batch, filtered))
        return tokens


class _Rows(NamedTuple):
    """The parameters of some rows, as columns."""

    temperature_R1: Tensor
    top_k_R1: Tensor
    top_p_R1: Tensor
    min_p_R1: Tensor
    uniform_R1: Tensor

    @classmethod
    def of(cls, batch: SampleBatch, rows: list[int] | None = None) -> "_Rows":
        draws = uniform(batch.seeds_R, batch.positions_R)
        columns = (batch.temperature_R, batch.top_k_R, batch.top_p_R, batch.min_p_R, draws)
        return cls(*((c if rows is None else c[rows]).unsqueeze(1) for c in columns))

    def pick(self, rows: Tensor) -> "_Rows":
        return _Rows(*(column[rows] for column in self))


def _kinds(batch: SampleBatch) -> tuple[list[int], list[int], list[int]]:
    kinds: tuple[list[int], list[int], list[int]] = ([], [], [])
    settings = zip(
        batch.temperature_R.tolist(), batch.top_k_R.tolist(), batch.top_p_R.tolist(), strict=True
    )
    for row, (temperature, top_k, top_p) in enumerate(settings):
        kind = 0 if temperature <= 0 else 2 if top_k > 0 or top_p < 1 else 1
        kinds[kind].append(row)
    return kinds


def _probabilities(logits_RV: Tensor, rows: _Rows) -> Tensor:
    """After temperature and min_p. The maximum is subtracted first: no temperature overflows."""
    scaled = logits_RV - logits_RV.amax(-1, keepdim=True)
    scaled *= rows.temperature_R1.float().reciprocal()
    scaled.masked_fill_(scaled < rows.min_p_R1.float().log(), float("-inf"))
    return scaled.softmax(-1)


def _pick(weights_RV: Tensor, rows: _Rows) -> Tensor:
    """The first index whose cumulative weight exceeds the draw: never one of weight 0."""
    cdf = weights_RV.cumsum(-1, dtype=torch.float64)
    index = torch.searchsorted(cdf, rows.uniform_R1 * cdf[:, -1:], right=True)
    return index.clamp_(max=weights_RV.shape[-1] - 1)


def _draw_plain(logits_RV: Tensor, rows: _Rows) -> Tensor:
    return _pick(_probabilities(logits_RV, rows), rows).squeeze(1)


def _draw_filtered(logits_RV: Tensor, rows: _Rows) -> Tensor:
    vocabulary = logits_RV.shape[-1]
    probabilities = _probabilities(logits_RV, rows)
    tokens = torch.empty(len(logits_RV), dtype=torch.int64, device=logits_RV.device)
    pending = torch.arange(len(logits_RV), device=logits_RV.device)
    window = _first_window(rows, vocabulary)
    while len(pending):
        values, ids = _highest(logits_RV[pending], window)
        candidates, asked = probabilities[pending].gather(1, ids), rows.pick(pending)
        kept, settled = _keep(values, candidates, asked, vocabulary)
        picked = _pick_by_id(ids, candidates * kept, asked)
        tokens[pending[settled]] = picked[settled]
        pending = pending[~settled]
        window = _wider(window, vocabulary)
    return tokens


def _first_window(rows: _Rows, vocabulary: int) -> int:
    """At least twice every top_k, so that its last candidate has others behind it."""
    least = 64 if bool((rows.top_k_R1 > 0).all()) else 1024
    return min(vocabulary, max(least, 2 * int(rows.top_k_R1.max())))


def _wider(window: int, vocabulary: int) -> int:
    return vocabulary if window * 32 > vocabulary else window * 16


def _highest(logits_RV: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """The highest logits; equal ones by id, which `topk` alone does not promise."""
    if window == logits_RV.shape[-1]:
        return torch.sort(logits_RV, dim=-1, descending=True, stable=True)
    values, ids = logits_RV.topk(window, dim=-1)
    ids, order = ids.sort(dim=-1)
    values, order = values.gather(1, order).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


def _keep(
    values_RW: Tensor, candidates_RW: Tensor, rows: _Rows, vocabulary: int
) -> tuple[Tensor, Tensor]:
    """Which candidates top_k and top_p keep, and for which rows the window suffices to tell."""
    window = values_RW.shape[-1]
    rank_W = torch.arange(window, device=values_RW.device)
    count_R1 = torch.where(rows.top_k_R1 > 0, rows.top_k_R1, vocabulary).clamp(max=vocabulary)
    inside = rank_W < count_R1
    mass = (candidates_RW * inside).cumsum(-1, dtype=torch.float64)
    total_R1 = torch.where(count_R1 < vocabulary, mass[:, -1:], 1.0)
    nucleus_R1 = rows.top_p_R1.double()
    limit_R1 = torch.where(nucleus_R1 < 1, nucleus_R1 * total_R1, float("inf"))
    kept = inside & (mass - candidates_RW < limit_R1)
    kept[:, 0] = True
    last_R1 = kept.sum(-1, keepdim=True) - 1
    # A candidate that equals the last of the window may have equals of lower id outside of it.
    settled = values_RW.gather(1, last_R1) > values_RW[:, -1:]
    return kept, (settled | (window == vocabulary)).squeeze(1)


def _pick_by_id(ids_RW: Tensor, weights_RW: Tensor, rows: _Rows) -> Tensor:
    ids, order = ids_RW.sort(dim=-1)
    return ids.gather(1, _pick(weights_RW.gather(1, order), rows)).squeeze(1)
