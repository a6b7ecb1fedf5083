"""How many blocks the pool gets."""

from typing import NamedTuple

from jackfield.core.api import CapacityError

GIB = 2**30


class Memory(NamedTuple):
    """What the device has, in bytes: all of it, and what nobody uses now."""

    total: int
    free: int


class PoolWish(NamedTuple):
    """What the configuration asks for: an exact number of blocks, or bytes, or neither."""

    num_blocks: int | None
    memory: int | None


def count_blocks(
    wish: PoolWish, memory: Memory, bytes_per_block: int, most_useful: int, default_memory: int
) -> int:
    """Blocks for the pool: what is asked, else what fits `default_memory` and is of any use.

    most_useful: blocks that the largest allowed load could fill. Raises `CapacityError` with all
    numbers when not even one block fits, or when more is asked than is free.
    """
    if wish.num_blocks is not None:
        blocks = wish.num_blocks
    else:
        budget = default_memory if wish.memory is None else wish.memory
        blocks = min(budget // bytes_per_block, most_useful)
    needed = blocks * bytes_per_block
    if blocks < 1 or needed > memory.free:
        raise CapacityError(
            f"the KV pool does not fit: {blocks} blocks of {bytes_per_block:,} bytes need "
            f"{needed / GIB:.2f} GiB, {memory.free / GIB:.2f} of {memory.total / GIB:.2f} GiB are "
            f"free; set cache.memory or cache.num_blocks, or lower model.max_model_len"
        )
    return blocks
