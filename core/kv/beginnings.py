"""What was found last for each beginning, for those who begin alike."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from jackfield.core.api import TOKEN_BYTES, Chain
from jackfield.core.kv.entry import Entry
from jackfield.core.kv.keys import common_blocks, common_keys
from jackfield.core.kv.request_chain import RequestChain, common_space

REMEMBERED = 32


class Last(NamedTuple):
    """Entries that hold the content of a sequence, from its start on."""

    view: Chain
    entries: Sequence[Entry]


class Beginnings:
    """By space and key of the first block; the tokens are compared, so that nothing is taken for
    something else. It spares asking an index, block by block, for what everybody begins with."""

    def __init__(self) -> None:
        self._last: OrderedDict[bytes, Last] = OrderedDict()

    def found(self, chain: RequestChain) -> None:
        """These are all entries of the chain."""
        if chain.found:
            last = self._last
            last[chain.head] = Last(chain.view, chain.found)
            last.move_to_end(chain.head)
            if len(last) > REMEMBERED:
                last.popitem(last=False)

    def like(self, chain: RequestChain) -> list[Entry]:
        """Living entries of what the chain has in common with who came last, without a gap."""
        last = self._last.get(chain.head)
        if last is None:
            return []
        common = _common(chain, last.view)
        found = list(last.entries[:common])
        while found and found[-1].dead:  # with an entry goes all that builds on it
            found.pop()
        return found

    def clear(self) -> None:
        """Nothing is there any more."""
        self._last.clear()


def _common(chain: RequestChain, other: Chain) -> int:
    """Blocks of equal tokens in the same spaces, from the start on."""
    width, mine, theirs = chain.block_size * TOKEN_BYTES, chain.view.tokens, other.tokens
    common = common_keys(chain.view.keys, other.keys)
    if mine[: common * width] != theirs[: common * width]:  # keys have met that should not
        common = min(common, common_blocks(mine, theirs, width))
    if chain.spaces != other.spaces:
        common = min(common, common_space(chain.spaces, other.spaces))
    return common
