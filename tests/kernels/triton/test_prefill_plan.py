"""How slices are cut into tiles, and tiles into pieces, all on the host."""

from jackfield.core.api.kernel import SliceExtent
from jackfield.plugins.kernels.triton.prefill_plan import (
    SHORTEST_PART,
    Join,
    Piece,
    Slice,
    classify,
    divide,
    parted,
    tiles,
)


def _slice(row: int, tokens: int, past: int = 0, begin: int = 0) -> Slice:
    return Slice(row, SliceExtent(begin, begin + tokens, past + tokens))


def _classes(tokens: list[int], pack: int, fill: int) -> list[tuple[int, list[int]]]:
    slices = [_slice(row, count) for row, count in enumerate(tokens)]
    return [(rows, [one.row for one in found]) for rows, found in classify(slices, pack, fill)]


def test_a_slice_gets_the_smallest_tiles_that_hold_its_rows() -> None:
    assert _classes([8, 9, 32, 33, 5000], 2, 1) == [(16, [0]), (64, [1, 2]), (128, [3, 4])]


def test_classes_that_do_not_fill_the_device_join_the_next() -> None:
    assert _classes([8, 100, 7], 2, 3) == [(128, [0, 2, 1])]
    assert _classes([8, 100, 7], 2, 2) == [(16, [0, 2]), (128, [1])]


def test_a_class_without_a_larger_one_stays_by_itself() -> None:
    assert _classes([8], 2, 1000) == [(16, [0])]
    assert _classes([], 2, 1) == []


def test_tiles_with_the_most_keys_come_first() -> None:
    found = tiles([_slice(0, 40, begin=3), _slice(5, 20, past=100, begin=43)], 32, None)
    assert found == [
        Piece(5, 43, 20, 100, 0, 120),
        Piece(0, 35, 8, 32, 0, 40),
        Piece(0, 3, 32, 0, 0, 32),
    ]


def test_a_window_leaves_out_the_keys_that_no_token_of_a_tile_sees() -> None:
    found = tiles([_slice(0, 40, past=100)], 32, 10)
    assert [(tile.begin, tile.end) for tile in found] == [(91, 132), (123, 140)]


def test_tiles_that_fill_the_device_are_not_divided() -> None:
    found = tiles([_slice(0, 64, past=100_000)], 16, None)
    assert divide(found, 64, 7) is None
    assert divide(found, 64, 8) is not None


def test_keys_that_are_few_are_not_divided() -> None:
    assert divide(tiles([_slice(0, 8, past=SHORTEST_PART - 8)], 16, None), 64, 100) is None


def test_parts_begin_at_tiles_and_cover_all_keys() -> None:
    found = tiles([_slice(2, 8, past=5000), _slice(3, 4, past=10)], 16, 3000)
    divided = divide(found, 64, 8)
    assert divided is not None
    pieces, joins = divided
    assert joins == [Join(0, 8, 0, 6), Join(0, 4, 6, 1)]
    parts = pieces[:6]
    assert (parts[0].begin, parts[-1].end) == (2001, 5008)
    assert [part.begin for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert all(part.begin % 64 == 0 for part in parts[1:])
    assert max(part.keys for part in pieces) <= SHORTEST_PART + 64


def test_few_tiles_with_far_more_keys_are_left_to_themselves() -> None:
    """Else the tiles beside them would be enough for the device, and nothing would be divided."""
    end, begin = _slice(0, 256, past=31_744), _slice(1, 1009, begin=256)
    found = tiles([end, begin], 128, None)
    assert divide(found, 64, 8) is None
    long, rest = parted(found, 8)
    assert [tile.row for tile in long] == [0, 0] and {tile.row for tile in rest} == {1}
    assert len(long) + len(rest) == len(found)
    divided = divide(long, 64, 8)
    assert divided is not None and len(divided[0]) == 8


def test_tiles_that_are_about_equal_stay_together() -> None:
    for slices in ([_slice(0, 256, past=31_744)], [_slice(row, 128, past=900) for row in (0, 1)]):
        found = tiles(slices, 128, None)
        assert list(parted(found, 8)) == [found]
    growing = tiles([_slice(0, 2048)], 128, None)
    assert list(parted(growing, 8)) == [growing], "most of them are long"
