"""What the host decides about prompts of latent attention: which positions are expanded together,
and in which tiles tokens attend to them.

All of it follows from what the host knows of a step, so the device is never waited for.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jackfield.core.api.latent import LatentSizes
from jackfield.plugins.kernels.triton.latent_prefill_kernel import CARRIED, KEPT
from jackfield.plugins.kernels.triton.prefill_plan import CLASSES, SHORTEST_PART, Join, Slice

LONG = 1024
"""Positions before a slice from which it is asked which form costs less."""
MOST_ABSORBED = 256
"""Tokens of a step that are computed in the absorbed form; each is a row of scratch."""
DEARER = 4
"""How much more an operation costs in the absorbed form than in a large product: each token reads
all that is stored by itself."""


class Range(NamedTuple):
    """Positions of a sequence that are expanded. row: of the block tables. begin: the first one.
    place: of that among all that are expanded together."""

    row: int
    begin: int
    positions: int
    place: int


class Piece(NamedTuple):
    """One tile's tokens, and the keys that one program reads for them.

    place: of the first key. token: the first one's place in the step. position: the first token's,
    counted from the first key. part, flags: see `latent_prefill_kernel`.
    """

    place: int
    token: int
    tokens: int
    position: int
    keys: int
    part: int = 0
    flags: int = 0


class Chunk(NamedTuple):
    """Positions that are expanded together, and what attends to them."""

    ranges: tuple[Range, ...]
    pieces: tuple[Piece, ...]

    @property
    def positions(self) -> int:
        """That are expanded."""
        return sum(each.positions for each in self.ranges)


class Pass(NamedTuple):
    """Chunks one after the other. parts: that they have in common. joins: of those."""

    chunks: tuple[Chunk, ...]
    parts: int
    joins: tuple[Join, ...]


class Tiling(NamedTuple):
    """tokens, keys: of a tile. heads: each is a program. slots: programs that run at once."""

    tokens: int
    keys: int
    heads: int
    slots: int


class Cut(NamedTuple):
    """Keys of a tile in one chunk. place: of the first."""

    chunk: int
    begin: int
    end: int
    place: int


def absorbed(slices: Sequence[Slice], sizes: LatentSizes) -> list[Slice]:
    """Those that cost less in the absorbed form, as a few tokens after a long past do.

    Per position and head, expansion costs 2 * rank * (plain + value) operations, and then 2 *
    (query + value) for each token; the absorbed form 2 * (stored + rank) for each token, which are
    dearer. With the sizes of DeepSeek-V3 that is so for up to 32 tokens.
    """
    found: list[Slice] = []
    room = MOST_ABSORBED
    for one in slices:
        expanded = sizes.rank * (sizes.plain + sizes.value)
        expanded += one.tokens * (sizes.query + sizes.value)
        cost = DEARER * one.tokens * (sizes.stored + sizes.rank)
        if one.extent.past >= LONG and one.tokens <= room and cost < expanded:
            found.append(one)
            room -= one.tokens
    return found


def groups(slices: Sequence[Slice], most: int) -> Iterator[list[Slice]]:
    """Slices that are computed in one pass: as many as fit a chunk of so many positions, or one
    that does not."""
    waiting: list[Slice] = []
    free = most
    for one in slices:
        length = one.extent.length
        if length > most:
            yield [one]
            continue
        if length > free:
            yield waiting
            waiting, free = [], most
        waiting.append(one)
        free -= length
    if waiting:
        yield waiting


def rows_of(slices: Sequence[Slice]) -> int:
    """The class of tiles: the smallest that holds the longest slice, or else the largest."""
    longest = max(one.tokens for one in slices)
    return next((rows for rows in CLASSES if longest <= rows), CLASSES[-1])


def make_pass(slices: Sequence[Slice], most: int, tiling: Tiling) -> Pass:
    """Of slices that `groups` put together."""
    ranges = list(_ranges(slices, most))
    tiles = [tile for one in slices for tile in _tiles(one, tiling.tokens)]
    size = _size(tiles, tiling)
    pieces: list[list[Piece]] = [[] for _ in ranges]
    parts, joins = 0, []
    for one, tile in tiles:
        cuts = list(_cuts(one, tile, ranges, size))
        divided = size is not None and len(cuts) > 1
        for index, cut in enumerate(cuts):
            part = parts + index if divided else parts
            pieces[cut.chunk].append(_piece(one, tile, cut, part, _flags(index, cuts, divided)))
        if divided:
            joins.append(Join(tile.begin, tile.end - tile.begin, parts, len(cuts)))
            parts += len(cuts)
        elif len(cuts) > 1:
            parts += 1
    chunks = [
        Chunk(tuple(found), tuple(sorted(todo, key=lambda piece: -piece.keys)))
        for found, todo in zip(ranges, pieces, strict=True)
    ]
    return Pass(tuple(chunks), parts, tuple(joins))


def most_parts(length: int, tokens: int, most: int, tiling: Tiling) -> int:
    """Of a pass at most, heads counted. length: of a sequence; tokens: of a step."""
    chunks = -(-length // most)
    divided = tiling.slots * (chunks + 3) // 2
    carried = (-(-tokens // tiling.tokens) + 1) * tiling.heads
    return max(divided, carried if chunks > 1 else 0)


class _Tile(NamedTuple):
    """Tokens of a step, and the last position that they see, from the start of the sequence."""

    begin: int
    end: int
    reach: int


def _ranges(slices: Sequence[Slice], most: int) -> Iterator[list[Range]]:
    if len(slices) == 1:
        row, (*_, length) = slices[0]
        for begin in range(0, length, most):
            yield [Range(row, begin, min(most, length - begin), 0)]
        return
    found, place = [], 0
    for one in slices:
        found.append(Range(one.row, 0, one.extent.length, place))
        place += one.extent.length
    yield found


def _tiles(one: Slice, tokens: int) -> Iterator[tuple[Slice, _Tile]]:
    begin, end, _ = one.extent
    for first in range(begin, end, tokens):
        last = min(first + tokens, end)
        yield one, _Tile(first, last, one.extent.past + last - begin)


def _size(tiles: Sequence[tuple[Slice, _Tile]], tiling: Tiling) -> int | None:
    """Keys of one program at most, if there are too few tiles for the device; None = any."""
    if 2 * len(tiles) * tiling.heads > tiling.slots:
        return None
    keys = sum(tile.reach for _, tile in tiles)
    even = max(-(-keys * tiling.heads // tiling.slots), SHORTEST_PART)
    return -(-even // tiling.keys) * tiling.keys


def _cuts(
    one: Slice, tile: _Tile, ranges: Sequence[Sequence[Range]], size: int | None
) -> Iterator[Cut]:
    for chunk, found in enumerate(ranges):
        for row, first, count, place in found:
            if row != one.row:
                continue
            end = min(first + count, tile.reach)
            for begin in range(first, end, size or max(end - first, 1)):
                stop = end if size is None else min(begin + size, end)
                yield Cut(chunk, begin, stop, place + begin - first)


def _flags(index: int, cuts: Sequence[Cut], divided: bool) -> int:
    if divided:
        return int(KEPT.value)
    carried, kept = index > 0, index < len(cuts) - 1
    return int(carried * CARRIED.value + kept * KEPT.value)


def _piece(one: Slice, tile: _Tile, cut: Cut, part: int, flags: int) -> Piece:
    position = one.extent.past + tile.begin - one.extent.begin - cut.begin
    tokens = tile.end - tile.begin
    return Piece(cut.place, tile.begin, tokens, position, cut.end - cut.begin, part, flags)
