"""Asks plugins what is copied to the tier below."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from jackfield.core.api import DEVICE, Move, MoveCandidate, MoveView
from jackfield.core.kv.contained import Hook
from jackfield.core.kv.entry import Entry
from jackfield.core.kv.pool import BlockPool
from jackfield.core.kv.residency import Residency
from jackfield.core.kv.tier import Tier

NO_MOVES: Sequence[Move] = ()


class TierPair(NamedTuple):
    """Two neighbours. above: None = the device."""

    above: Tier | None
    below: Tier

    def holds(self, entry: Entry) -> bool:
        """Whether the upper one holds the entry, complete."""
        return entry.on_device if self.above is None else self.above.name in entry.slots

    def may_copy(self, entry: Entry) -> bool:
        """Whether there is a copy above, none below, and no transfer touches it."""
        if self.below.name in entry.slots or not self.holds(entry):
            return False
        if self.above is None:
            return entry.transfers == 0
        return entry.slots[self.above.name] not in self.above.readers


class MovePolicy:
    """Folds all implementations of `move`: larger priorities first, in the order of candidates."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = list(hooks)

    @property
    def asks(self) -> bool:
        """Whether anybody decides."""
        return any(not hook.guard.off for hook in self._hooks)

    def choose(self, view: MoveView, candidates: Sequence[Entry], budget: int) -> list[Entry]:
        """Which of the candidates are copied, the first one first. view: it shows the same ones."""
        priorities: dict[int, int] = {}
        for guard, call in self._hooks:
            if not guard.off:
                for block, priority in guard.ask(NO_MOVES, _moves, call, view, budget):
                    priorities[block] = max(priorities.get(block, priority), priority)
        chosen = [entry for entry in candidates if entry.id in priorities]
        return sorted(chosen, key=lambda entry: -priorities[entry.id])


def view_of(
    pair: TierPair,
    candidates: Sequence[Entry],
    residency: Residency,
    block_bytes: int,
    under_way: int,
) -> MoveView:
    """What the hook sees. under_way: copies to the tier below that have not ended."""
    above, below, pool = pair.above, pair.below, residency.pool
    seen = [
        MoveCandidate(one.id, one.depth, one.leases > 0, above is None and _is_live(one, pool))
        for one in candidates
    ]
    if above is None:
        spare = residency.num_copied + under_way
        place = (DEVICE, below.name, pool.num_empty, spare, pool.num_blocks)
    else:
        spare = sum(below.name in entry.slots for entry in above.entries.values()) + under_way
        place = (above.name, below.name, above.num_free, spare, above.spec.num_slots)
    return MoveView(*place, below.num_free, below.spec.num_slots, block_bytes, seen)


def _is_live(entry: Entry, pool: BlockPool) -> bool:
    return pool.holders(entry.block) > 0


def _moves(answer: Any) -> list[Move]:
    moves = list(answer)
    for move in moves:
        if not isinstance(move, Move) or type(move.priority) is not int:
            raise ValueError(f"it returned {move!r}, which is no Move")
    return moves
