"""What the host decides about slices of several tokens: in which tiles they are computed.

All of it follows from what the host knows of a step, so the device is never waited for.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jackfield.core.api.kernel import SliceExtent

CLASSES = (16, 64, 128)
"""Rows of a tile. A slice gets the smallest that holds its rows, or else the largest."""
SHORTEST_PART = 512
"""Keys from which a part of a tile's keys is worth a program, and the join that it takes."""
FAR_LONGER = 1.5
"""Than an even share of all keys: such tiles would be computed alone in the end."""


class Slice(NamedTuple):
    """Tokens of the step that are computed together. row: theirs of the block tables."""

    row: int
    extent: SliceExtent

    @property
    def tokens(self) -> int:
        return self.extent.end - self.extent.begin


class Piece(NamedTuple):
    """One tile's tokens, and the keys that one program reads for them.

    row: of the block tables. token: the first one's place in the step.
    position: the first one's in the sequence. begin, end: positions of keys.
    """

    row: int
    token: int
    tokens: int
    position: int
    begin: int
    end: int

    @property
    def keys(self) -> int:
        return self.end - self.begin


class Join(NamedTuple):
    """A tile whose keys were divided: its tokens, and its pieces, which lie side by side."""

    token: int
    tokens: int
    first: int
    parts: int


def classify(slices: Sequence[Slice], pack: int, fill: int) -> Iterator[tuple[int, list[Slice]]]:
    """Slices by the rows of their tiles.

    pack: rows of a token. fill: rows that keep a device busy; slices of a class that do not, join
    those of the next, whose larger tiles cost less than programs that run alone.
    """
    waiting: list[Slice] = []
    for rows in CLASSES:
        waiting += [one for one in slices if _class_of(one, pack) == rows]
        larger = any(_class_of(one, pack) > rows for one in slices)
        if waiting and (not larger or _tiles(waiting, pack, rows) >= fill):
            yield rows, waiting
            waiting = []


def _class_of(one: Slice, pack: int) -> int:
    return next((rows for rows in CLASSES if one.tokens * pack <= rows), CLASSES[-1])


def _tiles(slices: Sequence[Slice], pack: int, rows: int) -> int:
    return sum(-(-one.tokens * pack // rows) for one in slices)


def tiles(slices: Sequence[Slice], tokens: int, window: int | None) -> list[Piece]:
    """All tiles of so many tokens, those with the most keys first: what starts last ends soon."""
    found = [
        _tile(one, offset, tokens, window)
        for one in slices
        for offset in range(0, one.tokens, tokens)
    ]
    return sorted(found, key=lambda tile: -tile.keys)


def _tile(one: Slice, offset: int, tokens: int, window: int | None) -> Piece:
    count = min(tokens, one.tokens - offset)
    position = one.extent.past + offset
    begin = 0 if window is None else max(0, position + 1 - window)
    return Piece(one.row, one.extent.begin + offset, count, position, begin, position + count)


def parted(found: Sequence[Piece], slots: int) -> Iterator[Sequence[Piece]]:
    """Tiles that are computed together. Few ones with far more keys than others are left to
    themselves, so that they can be divided. slots: tiles that run at the same time."""
    even = sum(piece.keys for piece in found) / slots
    limit = max(FAR_LONGER * even, 2 * SHORTEST_PART)
    longest = [piece for piece in found if piece.keys > limit]
    if 0 < 2 * len(longest) <= slots and len(longest) < len(found):
        yield longest
        found = found[len(longest) :]
    yield found


def divide(found: Sequence[Piece], tile: int, slots: int) -> tuple[list[Piece], list[Join]] | None:
    """The same tiles with their keys divided, if there are too few tiles for the device.

    tile: keys that a program reads at once. slots: tiles that run at the same time. None = enough
    tiles, or too few keys.
    """
    if 2 * len(found) > slots:
        return None
    even = -(-sum(piece.keys for piece in found) // slots)
    size = -(-max(even, SHORTEST_PART) // tile) * tile
    if all(piece.keys <= size for piece in found):
        return None
    pieces: list[Piece] = []
    joins = []
    for piece in found:
        parts = list(_parts(piece, size, tile))
        joins.append(Join(piece.token, piece.tokens, len(pieces), len(parts)))
        pieces += parts
    return pieces, joins


def _parts(piece: Piece, size: int, tile: int) -> Iterator[Piece]:
    begin = piece.begin
    while begin < piece.end:
        end = min(begin // tile * tile + size, piece.end)
        yield piece._replace(begin=begin, end=end)
        begin = end
