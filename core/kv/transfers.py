"""Copies of blocks: inside the pool, between the device and its tiers, and between tiers."""

from enum import Enum
from typing import NamedTuple


class BlockCopy(NamedTuple):
    """The content of one block of the pool, copied to another before the step computes."""

    source: int
    target: int


class TransferKind(Enum):
    """What a transfer does.

    STORE: from a block of the device to a slot. LOAD: from a slot to a block. SPILL: from a slot
    to a slot of the tier below. DROP: the slot's content is not needed any more; it never ends.
    """

    STORE = "store"
    LOAD = "load"
    SPILL = "spill"
    DROP = "drop"


class Transfer(NamedTuple):
    """One block that is copied between the device and a tier, or between tiers.

    tier: name of the tier that `slot` belongs to. block: of the pool; for SPILL the slot that is
    read in the tier `above`. checked: keep a checksum, or compare it.
    """

    number: int
    kind: TransferKind
    tier: str
    slot: int
    block: int = -1
    above: str = ""
    checked: bool = True


class TransferEnd(NamedTuple):
    """A transfer has ended. error: why it failed; its target holds nothing then. seconds: since it
    was ordered; 0 = not known."""

    number: int
    error: str | None = None
    seconds: float = 0.0
