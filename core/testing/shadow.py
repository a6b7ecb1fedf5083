"""What the blocks of a fake executor and the slots of its tiers really stand for.

A map of contents that no cache and no planner has a hand in, to hold their records against (law M5
of the oracle of contents).
"""

from collections.abc import Iterable, Sequence

from jackfield.core.testing.fake_executor import FakeExecutor, Seat
from jackfield.core.testing.fake_memory import Cell, Content, tokens_of

Place = int | tuple[str, int]
"""A block of the device, or the name of a tier and a slot of it."""


class Shadow:
    """Looks at the memory of one executor. It keeps nothing, so it is never out of date."""

    def __init__(self, executor: FakeExecutor) -> None:
        self._memory = executor.memory
        self._tiers = executor.tiers

    def content(self, block: int) -> tuple[int, ...] | None:
        """All tokens from the start of a sequence to the last one that the block holds of it.

        None if it holds nothing sensible: it was never written, or it was spoilt.
        """
        return _tokens(_run(self._memory.get(block)))

    def slot_content(self, tier: str, slot: int) -> tuple[int, ...] | None:
        """The same of a slot. None also while the slot is empty or being filled."""
        return _tokens(_run(self._tiers.content(tier, slot) or {}))

    def check_tables(self, seats: Iterable[Seat]) -> None:
        """Every position that was computed on these seats holds the request's own tokens.

        Pass the seats of the requests that run. A seat whose request has ended, or has failed with
        a step, may still be taken, and its blocks may be somebody else's by now. Raises
        `AssertionError` naming the block.
        """
        for seat in seats:
            self._check_table(seat)

    def _check_table(self, seat: Seat) -> None:
        own = [*seat.join.prompt, *seat.join.output, *seat.sampled]
        length, size = seat.end or 0, self._memory.block_size
        assert length <= len(own), f"{seat.join.handle} has computed more than its tokens"
        last: Cell | None = None
        for start in range(0, length, size):
            block = seat.table[start // size]
            content = self._memory.get(block)
            for offset in range(min(size, length - start)):
                token = own[start + offset]
                cell = content.get(offset)
                assert cell is not None and cell.token == token and cell.follows(last), (
                    f"position {start + offset} of {seat.join.handle} is in block {block}, which "
                    f"{_holds(content)} and should hold {own[: start + offset + 1]}"
                )
                last = cell

    def check_entries(self, entries: Iterable[tuple[Place, Sequence[int]]]) -> None:
        """Each place holds these tokens from its first position on, after whatever is before it.

        Raises `AssertionError` naming the place.
        """
        for place, tokens in entries:
            content = self._content(place)
            held = tokens_of(_cell(content, len(tokens) - 1))[-len(tokens) :]
            assert held == list(tokens), (
                f"{_name(place)} is recorded with {list(tokens)} and {_holds(content)}"
            )

    def check_prefixes(self, entries: Iterable[tuple[Place, Sequence[int]]]) -> None:
        """Each place holds the end of this sequence, which is given from its start.

        Two places with the same tokens after different ones are told apart. Raises
        `AssertionError` naming the place.
        """
        for place, prefix in entries:
            content = self._content(place)
            held = tokens_of(_cell(content, (len(prefix) - 1) % self._memory.block_size))
            assert held == list(prefix), (
                f"{_name(place)} is recorded as the end of {list(prefix)} and {_holds(content)}"
            )

    def _content(self, place: Place) -> Content:
        if isinstance(place, int):
            return self._memory.get(place)
        return self._tiers.content(*place) or {}


def _run(content: Content) -> list[Cell]:
    """The cells from the first on that were computed one after another; not what is stale."""
    run: list[Cell] = []
    while (cell := content.get(len(run))) is not None and (not run or cell.follows(run[-1])):
        run.append(cell)
    return run


def _cell(content: Content, offset: int) -> Cell | None:
    """What is at that position of the block, if it belongs to what is before it there."""
    run = _run(content)
    return run[offset] if 0 <= offset < len(run) and run[offset].sound else None


def _tokens(run: Sequence[Cell]) -> tuple[int, ...] | None:
    return tuple(tokens_of(run[-1])) if run and run[-1].sound else None


def _holds(content: Content) -> str:
    tokens = _tokens(_run(content))
    return "holds nothing sensible" if tokens is None else f"holds the end of {list(tokens)}"


def _name(place: Place) -> str:
    return f"block {place}" if isinstance(place, int) else f"slot {place[1]} of {place[0]}"
