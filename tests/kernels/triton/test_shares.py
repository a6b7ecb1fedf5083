"""Shares of a step's decodes against a list of all tiles."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.core.api.kernel import AttnBatch
from jackfield.plugins.kernels.triton.shares import BLOCK, make_shares, room_for

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

TILE, ALIGN = 16, 8
LENS = [0, 1, TILE, TILE + 1, 400, 0, 90, 33]
Pair = tuple[int, int, int] | None


def batch(lens: list[int]) -> AttnBatch:
    empty = torch.empty(0)
    lens_S = torch.tensor(lens, dtype=torch.int32)
    return AttnBatch(empty, lens_S, empty, empty, len(lens), 1, max(lens), (), None)


def laid_out(lens: list[int], heads: int, window: int | None) -> list[Pair]:
    """(row, head, tile) one after the other, and None for what each pair costs beside."""
    line: list[Pair] = []
    for row, length in enumerate(lens):
        begin = 0 if window is None else max(length - window, 0) // ALIGN * ALIGN
        tiles = max(-(-(length - begin) // TILE), 1)
        for head in range(heads):
            line += [(row, head, tile) for tile in range(tiles)] + [None]
    return line


def table_of(
    lens: list[int], heads: int, programs: int, least: int, window: int | None
) -> tuple[Tensor, int]:
    room = room_for(programs, TILE, ALIGN, torch.empty(0).device)
    room.table.fill_(-7)
    made = make_shares(batch(lens), heads, window, room, least)
    size = max(-(-len(laid_out(lens, heads, window)) // programs), least)
    return made.table.cpu(), size


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("least", [1, 5])
@pytest.mark.parametrize("programs", [1, 4, 17, 70])
@pytest.mark.parametrize("heads", [1, 8])
def test_shares_are_equal_parts_of_the_line(
    heads: int, programs: int, least: int, window: int | None
) -> None:
    table, size = table_of(LENS, heads, programs, least, window)
    line = laid_out(LENS, heads, window)
    for program in range(programs + 1):
        part = line[program * size : (program + 1) * size]
        row, head, tile, left = table[program].tolist()
        if not part:
            assert row == len(LENS)
        elif part[0] is not None:
            assert (row, head, tile, left) == (*part[0], size)
        else:
            assert left == size - 1
            assert len(part) == 1 or (row, head, tile) == part[1]


def test_more_rows_than_are_looked_at_at_once() -> None:
    lens = [at % 70 for at in range(BLOCK + 40)]
    table, size = table_of(lens, 2, 60, 1, None)
    line = laid_out(lens, 2, None)
    begins = [line[at] or line[at + 1] for at in range(0, len(line) - 1, size)]
    assert [tuple(found[:3]) for found in table.tolist()[: len(begins)]] == begins


def test_what_is_left_is_told_after_a_change_of_lengths() -> None:
    """As a replayed graph does it: the same tensors with other content."""
    held = batch(LENS)
    room = room_for(9, TILE, ALIGN, held.lens_S.device)
    make_shares(held, 2, None, room, 1)
    held.lens_S.copy_(torch.tensor(LENS[::-1], dtype=torch.int32))
    again = make_shares(held, 2, None, room, 1).table.clone()
    assert torch.equal(again.cpu(), table_of(LENS[::-1], 2, 9, 1, None)[0])
