"""Tiers: where blocks go that the device has no room for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


class TierSpec(NamedTuple):
    """One tier below the device, as the engine accounts for it.

    name: also in `cache.eviction`. num_slots: blocks that it holds at most. checked: whether the
    core keeps a checksum of every block, and compares it when the block comes back.
    """

    name: str
    num_slots: int
    checked: bool = True


class TierSpace(NamedTuple):
    """Where a tier is opened: which rank, how many bytes a block has there, how many slots.

    pinned: whether memory should be locked, because a GPU copies from it.
    """

    rank: int
    block_bytes: int
    num_slots: int
    pinned: bool = False


class TierStore(Protocol):
    """The bytes of one tier on one rank.

    All calls come from a thread of the core that belongs to this store alone, one after another;
    they may wait. Whatever they raise fails that transfer and nothing else. Slots are numbers from
    0 to num_slots - 1, chosen by the core; a slot is overwritten by the next `put`.
    """

    def put(self, slot: int, data_B: "Tensor") -> None:
        """Keep the bytes (uint8, on the host, `block_bytes` of them) under the slot's number.

        They must be copied: the buffer is used again.
        """

    def get(self, slot: int, into_B: "Tensor") -> None:
        """Copy the bytes of a slot into the buffer. Raise if they are not what was put.

        Called for slots that hold something: since their last `put` there was no `drop`.
        """

    def drop(self, slot: int) -> None:
        """What the slot holds is not needed any more. It may be empty: then there is nothing to do.

        Whatever it raises is ignored.
        """

    def close(self) -> None:
        """Give everything back: memory, files, folders. Called once, and nothing afterwards.

        Not called while another call has not returned; if that never returns, not at all.
        """


@runtime_checkable
class DirectStore(TierStore, Protocol):
    """A store in the memory of the host that a GPU copies to and from without a buffer in between.

    These methods are called in place of `put` and `get` for copies between a GPU and the tier, by
    the same thread. `TierSpace.pinned` says that there is a GPU; the memory must be locked then,
    or copies are several times slower. Other copies go through `put` and `get`.
    """

    def target(self, slot: int) -> "Tensor":
        """Where the bytes of the slot go: uint8, `block_bytes` of them, contiguous.

        From now on the slot holds what is written there, before any other call.
        """

    def source(self, slot: int) -> "Tensor":
        """The bytes of the slot, where they are; they are only read, before any other call.

        Called for slots that hold something, as `get` is. Raise if they are not what was put.
        """


class MoveCandidate(NamedTuple):
    """A block that could be copied to the tier below. block: an id. depth: blocks before it.

    leased: a preempted request waits to go on with it. live: a running request holds it; it stays
    where it is, and could be given up at once if the request were preempted.
    """

    block: int
    depth: int
    leased: bool
    live: bool = False


class MoveView(NamedTuple):
    """One tier, seen by whoever decides what is copied to the one below.

    tier, below: names. free: blocks without content. clean: blocks that have a copy below, or are
    about to, so that they can be given up at no cost once nobody uses them. capacity: blocks of
    the tier. free_below, capacity_below: of the tier below. block_bytes: what one copy moves.
    candidates: blocks without a copy below: the leased ones, then those that would be given up
    first, then those of running requests.
    """

    tier: str
    below: str
    free: int
    clean: int
    capacity: int
    free_below: int
    capacity_below: int
    block_bytes: int
    candidates: Sequence[MoveCandidate]


class Move(NamedTuple):
    """Copy a block to the tier below. Larger priorities go first."""

    block: int
    priority: int = 0
