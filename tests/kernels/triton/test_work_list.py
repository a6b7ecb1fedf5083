"""Lists of work that are made block by block against those that are made at once."""

from random import Random

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from jackfield.core.api.kernel import AttnBatch, SharedPrefixes
from jackfield.plugins.kernels.triton import work_list
from jackfield.plugins.kernels.triton.work_list import Cut, block_of, make_work_list

# Triton's interpreter makes scalars of arrays.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

ROWS = 75
GROUP = 9
"""Members of each group. Blocks of 32 end within groups."""


def integers(values: list[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def batch(*, grouped: bool) -> AttnBatch:
    random = Random(0)
    lens = [random.choice([0, 1, 64, random.randint(200, 900)]) for _ in range(ROWS)]
    shared = None
    if grouped:
        order, places = random.sample(range(ROWS), ROWS), range(ROWS)
        common = [16 * (place // GROUP) for place in places]
        lens = [max(length, 200) for length in lens]
        sizes = [min(GROUP, ROWS - place // GROUP * GROUP) for place in places]
        ranks = [place % GROUP for place in places]
        shared = SharedPrefixes(*map(integers, (order, ranks, sizes, common)))
    empty = torch.empty(0)
    return AttnBatch(empty, integers(lens), empty, empty, ROWS, 1, max(lens), (), shared)


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("window", [None, 100])
def test_more_rows_than_a_block_has(
    grouped: bool, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Cut(2, window, 300, 16, 16, 0, 0, 0, 32, 4)
    steps = batch(grouped=grouped)
    assert block_of(ROWS) == 256
    at_once = make_work_list(steps, cut)
    monkeypatch.setattr(work_list, "WARPS", {32: 2})
    assert block_of(ROWS) == 32
    found = make_work_list(steps, cut)
    for name, one, other in zip(found._fields, found[:-1], at_once[:-1], strict=False):
        if (grouped and window is None) or name != "shared_partials":
            assert told(name, one) == told(name, other), name
    assert int(at_once.num_partials[:ROWS].max()) > 1, "there is something to cut"
    assert (at_once.group_items.numel() > 0) == (grouped and window is None)


def told(name: str, values: Tensor) -> list[int]:
    """What the kernel writes; of an item, fields up to the end."""
    if name.endswith("items"):
        items = values.view(-1, 8).tolist()
        end = next((place for place, item in enumerate(items) if item[0] == -1), 0)
        return [field for item in items[:end] for field in item[:7]]
    return values[: 2 * ROWS if name == "counters" else ROWS].tolist()


@pytest.mark.parametrize(
    ("rows", "block"), [(1, 32), (32, 32), (33, 256), (256, 256), (257, 256), (1000, 256)]
)
def test_there_are_two_sizes_of_blocks(rows: int, block: int) -> None:
    assert block_of(rows) == block
