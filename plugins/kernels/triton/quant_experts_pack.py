"""Weights of few bits of all experts of a layer, in the order in which the kernels read them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from jackfield.core.api.quant import QuantKind, QuantWeight
from jackfield.core.api.quant_experts import QuantExpert
from jackfield.plugins.kernels.triton.quant_pack import AT_ONCE, SIDE, PackedQuant, packed

MOST_SCALES = 1 << 31
"""Of all experts together, which the kernels count in 32 bits."""


class PackedExperts(NamedTuple):
    """gate_up, down: the outputs of all experts as those of one weight, those of each filled up to
    whole tiles: of gate, then of up; of down. order_ED (int64): which input of the model each input
    of gate and up is, by expert; None = its own. width: F.
    """

    gate_up: PackedQuant
    down: PackedQuant
    order_ED: Tensor | None
    experts: int
    width: int

    @property
    def hidden(self) -> int:
        """The model's width."""
        return self.gate_up.shape[1]

    @property
    def apart(self) -> int:
        """Tiles of the gate of an expert."""
        return -(-self.width // SIDE)

    @property
    def sides(self) -> int:
        """Tiles of the down of an expert."""
        return -(-self.hidden // SIDE)

    @property
    def kernels_fit(self) -> bool:
        """Whether groups are such that the kernels can read them as they are packed."""
        return all(part.group % AT_ONCE == 0 for part in (self.gate_up, self.down))


class Tall:
    """A weight that grows by one expert at a time, all of which are packed alike."""

    def __init__(self, count: int) -> None:
        self._count, self._done = count, 0
        self._all: PackedQuant | None = None

    def add(self, weight: QuantWeight) -> None:
        part = packed(weight, None)
        if self._all is None:
            self._all = self._room(part)
        tall, at = self._all, self._done
        assert tall.values == part.values, "experts are of one kind"
        sides, groups = part.words.shape[0], part.scales_GR.shape[1]
        tall.words[at * sides : (at + 1) * sides] = part.words
        columns = slice(at * groups, (at + 1) * groups)
        tall.scales_GR[:, columns] = part.scales_GR
        if part.zeros_GR is not None and tall.zeros_GR is None:
            middle = part.kind.middle
            zeros_GR = torch.full_like(tall.scales_GR, middle, dtype=part.zeros_GR.dtype)
            self._all = tall = tall._replace(zeros_GR=zeros_GR)
        if part.zeros_GR is not None and tall.zeros_GR is not None:
            tall.zeros_GR[:, columns] = part.zeros_GR
        self._done += 1

    def done(self) -> PackedQuant:
        assert self._all is not None and self._done == self._count, f"{self._done} experts came"
        return self._all

    def _room(self, part: PackedQuant) -> PackedQuant:
        sides, *rest = part.words.shape
        groups, outputs = part.scales_GR.shape
        assert groups * outputs * self._count < MOST_SCALES, "there are too many scales"
        return part._replace(
            words=part.words.new_empty(self._count * sides, *rest),
            scales_GR=part.scales_GR.new_empty(groups, self._count * outputs),
            zeros_GR=None,
            shape=(self._count * part.shape[0], part.shape[1]),
            order_I=None,
            counters=part.counters[:0],
        )


def pack_experts(experts: Iterable[QuantExpert], count: int) -> PackedExperts:
    """Beside what it gives, one expert is held a few times."""
    gate_up, down, orders, width = Tall(count), Tall(count), _Orders(count), 0
    for index, expert in enumerate(experts):
        width = expert.down.shape[1]
        orders.put(index, expert.gate_up)
        gate_up.add(_whole_halves(replace(expert.gate_up, order_I=None)))
        down.add(_filled(expert.down))
    return PackedExperts(gate_up.done(), down.done(), orders.order_ED, count, width)


class _Orders:
    """Of the experts that have one; those of others go as they come."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.order_ED: Tensor | None = None

    def put(self, index: int, weight: QuantWeight) -> None:
        order_I = weight.order_I
        if order_I is None:
            return
        if self.order_ED is None:
            own_D = torch.arange(weight.shape[1], device=order_I.device)
            self.order_ED = own_D.repeat(self._count, 1)
        self.order_ED[index] = order_I


def _whole_halves(gate_up: QuantWeight) -> QuantWeight:
    """With gate and up filled up to whole tiles each."""
    width = gate_up.shape[0] // 2
    if width % SIDE == 0:
        return gate_up
    halves = [_filled(gate_up.block(first, first + width)) for first in (0, width)]
    first, second = halves
    zeros_RG = first.zeros_RG
    if zeros_RG is not None and second.zeros_RG is not None:
        zeros_RG = torch.cat((zeros_RG, second.zeros_RG))
    values = torch.cat([half.values.view(torch.uint8) for half in halves])
    return replace(
        first,
        values=values.view(first.values.dtype),
        scales_RG=torch.cat((first.scales_RG, second.scales_RG)),
        zeros_RG=zeros_RG,
        shape=(2 * first.shape[0], first.shape[1]),
    )


def _filled(weight: QuantWeight) -> QuantWeight:
    """Outputs that are 0 fill the last tile; blocks of outputs that would end within it are given
    up, and so are those that the next expert's could not follow."""
    outputs, inputs = weight.shape
    missing = -outputs % SIDE
    if missing == 0 and outputs % weight.rows == 0:
        return weight

    def fill(table_RG: Tensor) -> Tensor:
        spread = table_RG.repeat_interleave(weight.rows, 0)[:outputs]
        return torch.cat((spread, spread[:1].expand(missing, -1)))

    held = weight.values.view(torch.uint8)
    code = _nothing(weight.kind)
    values = torch.cat((held, held.new_full((missing, held.shape[1]), code)))
    return replace(
        weight,
        values=values.view(weight.values.dtype),
        scales_RG=fill(weight.scales_RG),
        zeros_RG=None if weight.zeros_RG is None else fill(weight.zeros_RG),
        rows=1,
        shape=(outputs + missing, inputs),
    )


def _nothing(kind: QuantKind) -> int:
    """A byte of codes that are harmless."""
    return {QuantKind.INT4: 0x88, QuantKind.INT8: 0x80, QuantKind.FP8: 0}[kind]
