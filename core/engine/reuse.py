"""What is there of a request's content already: what an admission need not compute."""

from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.engine.request import Request
from jackfield.core.kv.block_cache import BlockCache
from jackfield.core.kv.entry import NO_BLOCK, Entry


class Reuse(NamedTuple):
    """Positions that are there: those of whole blocks that are shared, and of a part of one more.

    entries: cached blocks. blocks: further ones that another answer to the prompt holds. source:
    the block that is copied, since it is to be written on; NO_BLOCK = none. num_tokens: positions.
    """

    entries: Sequence[Entry] = ()
    blocks: Sequence[int] = ()
    source: int = NO_BLOCK
    num_tokens: int = 0

    @property
    def num_shared(self) -> int:
        """Whole blocks."""
        return len(self.entries) + len(self.blocks)


NOTHING = Reuse()


def reuse_of(request: Request, cache: BlockCache) -> Reuse:
    """What an admission now would find on the device.

    At least one position is always left to the request itself, so that it has logits; all are
    while it collects scores of its prompt.
    """
    if request.wants_prompt_scores and not request.output:
        return NOTHING
    size, most = cache.pool.block_size, request.total - 1
    found = _cached(request, cache, most, size)
    return _with_group(request, found, most, size)


def _cached(request: Request, cache: BlockCache, most: int, size: int) -> Reuse:
    chain = request.chain
    if chain is None:
        return NOTHING
    count = cache.on_device(chain)
    if not count:
        return NOTHING
    full = most // size
    if count <= full:
        return Reuse(chain.found[:count], (), NO_BLOCK, count * size)
    source = chain.found[full].block if most % size else NO_BLOCK
    return Reuse(chain.found[:full], (), source, most)


def _with_group(request: Request, found: Reuse, most: int, size: int) -> Reuse:
    """Or what another answer to the same prompt holds, down to the last position, if that is more.

    All of it is taken from there: whoever holds a cached block holds what it builds on.
    """
    group = request.group
    most = min(len(request.prompt), most)
    if group is None or most <= found.num_tokens:
        return found
    donor = group.donor(most)
    if donor is None or donor is request:
        return found
    full = most // size
    entries = _published(donor)[:full] if request.chain is not None else []
    source = donor.blocks[full] if most % size else NO_BLOCK
    return Reuse(entries, donor.blocks[len(entries) : full], source, most)


def _published(donor: Request) -> list[Entry]:
    """Entries of its first blocks; those that are dead come last."""
    assert donor.chain is not None
    return [entry for entry in donor.chain.entries if not entry.dead]
