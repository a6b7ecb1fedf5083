"""A step's inputs from little news. Nothing waits for the device: all sizes are those of shapes."""

from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.kernel import OpSpec, SeatState, StepNews, StepTensors
from jackfield.plugins.kernels.torch_ops.everywhere import Everywhere


class TorchStepInputs(Everywhere):
    """A handful of small launches."""

    def unsupported(self, spec: OpSpec, device: torch.device) -> list[str]:
        if device.type == "cpu":
            return ["the host makes a CPU's inputs faster"]
        return []

    def __call__(
        self, news: StepNews, state: SeatState, block_size: int, into: StepTensors
    ) -> None:
        _keep_news(news, state)
        lens_S = news.starts_S + news.lengths_S
        into.lens_S.copy_(lens_S.masked_fill_(news.lengths_S == 0, 0))
        width = into.block_tables_SB.shape[1]
        into.block_tables_SB.copy_(state.tables_PB[:, :width].index_select(0, news.seats_S))
        if into.ids_T.shape[0]:
            _fill_tokens(news, state, block_size, into)


class _Tokens(NamedTuple):
    """Of each token: its slice, its place within it, and whether it is padding."""

    slice_T: Tensor
    offset_T: Tensor
    padding_T: Tensor


def _owners(begin_S1: Tensor, count: int) -> Tensor:
    """Which of the ranges each of `count` entries is in; the last one for those beyond."""
    entries = torch.arange(count, dtype=begin_S1.dtype, device=begin_S1.device)
    owners = torch.searchsorted(begin_S1[1:].contiguous(), entries, right=True)
    return owners.clamp_(max=begin_S1.shape[0] - 2)


def _keep_news(news: StepNews, state: SeatState) -> None:
    count = news.new_blocks_U.shape[0]
    slice_U = _owners(news.new_begin_S1, count)
    entry_U = torch.arange(count, device=slice_U.device)
    column_U = news.new_first_S[slice_U] + entry_U - news.new_begin_S1[slice_U]
    spare_U = entry_U >= news.new_begin_S1[-1]
    # What is behind the news goes to the seat of padding, whose blocks nobody reads.
    seat_U = news.seats_S[slice_U].long().masked_fill_(spare_U, state.tables_PB.shape[0] - 1)
    state.tables_PB[seat_U, column_U.masked_fill_(spare_U, 0)] = news.new_blocks_U


def _tokens(news: StepNews, count: int) -> _Tokens:
    slice_T = _owners(news.query_start_S1, count)
    entry_T = torch.arange(count, device=slice_T.device)
    offset_T = entry_T - news.query_start_S1[slice_T]
    return _Tokens(slice_T, offset_T, news.lengths_S[slice_T] == 0)


def _fill_tokens(news: StepNews, state: SeatState, block_size: int, into: StepTensors) -> None:
    tokens = _tokens(news, into.ids_T.shape[0])
    seat_T = news.seats_S[tokens.slice_T].long()
    position_T = news.starts_S[tokens.slice_T] + tokens.offset_T
    position_T.masked_fill_(tokens.padding_T, 0)
    block_T = state.tables_PB[seat_T, position_T // block_size].long()
    slot_T = block_T * block_size + position_T % block_size
    ids_T = _ids(news, tokens, _plain(state.last_token_P[seat_T]))
    into.positions_T.copy_(position_T)
    into.slots_T.copy_(slot_T.masked_fill_(tokens.padding_T, -1))
    into.ids_T.copy_(ids_T.masked_fill_(tokens.padding_T, 0))


def _plain(sampled_T: Tensor) -> Tensor:
    """Without the mark of tokens whose logit was no number."""
    return torch.where(sampled_T < 0, -1 - sampled_T, sampled_T)


def _ids(news: StepNews, tokens: _Tokens, fed_T: Tensor) -> Tensor:
    told = news.ids_T.shape[0]
    if told == 0:
        return fed_T
    begin_T = news.ids_begin_S[tokens.slice_T]
    told_T = news.ids_T[(begin_T + tokens.offset_T).clamp_(0, told - 1)].long()
    return told_T.where(begin_T >= 0, fed_T)
