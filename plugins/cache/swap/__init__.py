"""Blocks that the device has no room for, in the host's memory and on a disk."""

from collections.abc import Sequence
from itertools import takewhile
from math import ceil
from typing import Annotated

from pydantic import BeforeValidator, Field

from jackfield.core.api import (
    DEVICE,
    CacheAxis,
    CachePlugin,
    ConfigError,
    Move,
    MoveCandidate,
    MoveView,
    PolicyConfig,
    TierSpace,
    TierSpec,
    TierStore,
    format_bytes,
    hookimpl,
    parse_bytes,
)
from jackfield.plugins.cache.swap.disk_store import DiskStore
from jackfield.plugins.cache.swap.folder import open_folder
from jackfield.plugins.cache.swap.host_store import HostStore

HOST, DISK = "host", "disk"


class SwapConfig(PolicyConfig):
    """memory: of the host, bytes or a text such as "4GiB". disk: likewise; 0 = none. folder: of the
    disk's blocks; None = a private one below the user's cache folder. clean_share,
    host_clean_share: of the device and of the host's memory, how much should be free, or have a
    copy below. checked: whether blocks in memory have checksums; those on the disk always do.
    """

    memory: Annotated[int, BeforeValidator(parse_bytes), Field(ge=1)] = 4 * 2**30
    disk: Annotated[int, BeforeValidator(parse_bytes), Field(ge=0)] = 0
    folder: str | None = None
    clean_share: float = Field(1.0, ge=0, le=1)
    host_clean_share: float = Field(0.1, ge=0, le=1)
    checked: bool = False


class Swap(CachePlugin):
    """Brings the tier `host`, and `disk` if it has a size, and keeps room above each of them.

    A block that has a copy below can be given up at once, so a shortage need not wait for a copy.
    Blocks that a preempted request will go on with are copied from the device in any case: it was
    short of room when they were let go. All others only until enough of the tier is free or clean.

    Source: swapping as in Kwon et al., PagedAttention, SOSP 2023; copies ahead of need as in the
    page cleaning of operating systems.
    """

    Config = SwapConfig
    axis = CacheAxis.TIER
    config: SwapConfig

    @hookimpl
    def tiers(self, block_bytes: int) -> Sequence[TierSpec]:
        """The record of a block on the disk holds a checksum of its own. Blocks in memory are as
        safe as all other memory of the process, and checksums take ten times as long as copies."""
        slots = _num_slots("memory", self.config.memory, block_bytes)
        host = TierSpec(HOST, slots, self.config.checked)
        if not self.config.disk:
            return [host]
        slots = _num_slots("disk", self.config.disk, block_bytes)
        return [host, TierSpec(DISK, slots, checked=False)]

    @hookimpl
    def store(self, name: str, space: TierSpace) -> TierStore | None:
        if name == HOST:
            return HostStore(space)
        if name == DISK:
            return DiskStore(open_folder(self.config.folder, space), space)
        return None

    @hookimpl
    def move(self, view: MoveView, byte_budget: int) -> Sequence[Move]:
        if view.below not in (HOST, DISK):
            return ()
        on_device = view.tier == DEVICE
        share = self.config.clean_share if on_device else self.config.host_clean_share
        missing = ceil(share * view.capacity) - view.free - view.clean
        most = byte_budget // view.block_bytes
        urgent = [*takewhile(_is_leased, view.candidates)] if on_device else []
        count = min(max(missing, len(urgent)), most)
        if count <= 0:
            return ()
        return [Move(one.block, int(one.leased)) for one in view.candidates[:count]]


def _is_leased(candidate: MoveCandidate) -> bool:
    return candidate.leased


def _num_slots(key: str, size: int, block_bytes: int) -> int:
    if size < block_bytes:
        raise ConfigError(
            f"cache.swap.{key} is {format_bytes(size)}, less than one block of "
            f"{format_bytes(block_bytes)}; raise it, or use smaller blocks"
        )
    return size // block_bytes
