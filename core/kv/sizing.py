"""How many blocks the pool gets."""

from typing import NamedTuple

from jackfield.core.api import CapacityError

GIB = 2**30
UNKNOWN = GIB
"""Bytes that a process holds at most without knowing: of kernels, contexts and libraries."""


class Memory(NamedTuple):
    """What the device has, in bytes: all of it, and what nobody uses now.

    own: what this process knows that it holds; kernels and contexts come on top.
    """

    total: int
    free: int
    own: int = 0


class PoolWish(NamedTuple):
    """What the configuration asks for: an exact number of blocks, or bytes, or neither."""

    num_blocks: int | None
    memory: int | None


class Budget(NamedTuple):
    """What the pool may take when the configuration names no size. origin: where it comes from."""

    bytes: int
    origin: str


def held_by_us(before: Memory, now: Memory) -> int:
    """Bytes that this process holds.

    What it does not know of went, too, since `before`; but more than kernels and contexts take is
    somebody else's, who came in the meantime.
    """
    unknown = (before.free - now.free) - (now.own - before.own)
    return now.own + min(max(unknown, 0), UNKNOWN)


def share_of(memory: Memory, fraction: float, own: int, scratch: int) -> Budget:
    """A fraction of the device, less what this process holds and what a step needs beside it.

    What other processes hold counts only where they leave less than that.
    """
    left = min(int(memory.total * fraction) - own, memory.free) - scratch
    origin = (
        f"{fraction:g} of the device, less {_gib(own)} held by this process and "
        f"{_gib(scratch)} for a step, leaves {_gib(max(left, 0))}"
    )
    return Budget(max(left, 0), origin)


def count_blocks(
    wish: PoolWish, memory: Memory, bytes_per_block: int, most_useful: int, default: Budget
) -> int:
    """Blocks for the pool: what is asked, else what fits the default and is of any use.

    most_useful: blocks that the largest allowed load could fill. Raises `CapacityError` with all
    numbers when not even one block fits, or when more is asked than is free.
    """
    if wish.num_blocks is not None:
        blocks = wish.num_blocks
    else:
        budget = default.bytes if wish.memory is None else wish.memory
        blocks = min(budget // bytes_per_block, most_useful)
    needed = max(blocks, 1) * bytes_per_block
    if blocks < 1 or needed > memory.free:
        asked = wish.num_blocks is not None or wish.memory is not None
        raise CapacityError(
            f"the KV pool does not fit: {max(blocks, 1)} blocks of {bytes_per_block:,} bytes need "
            f"{_gib(needed)}, {_gib(memory.free)} of {_gib(memory.total)} are free"
            f"{'' if asked else f'; {default.origin}'}; set cache.memory or cache.num_blocks, or "
            f"lower model.max_model_len"
        )
    return blocks


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
