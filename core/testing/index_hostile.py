"""Indexes of blocks that lie, for tests of a core that must not believe them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from jackfield.core.api import BlockIndex, CacheAxis, CachePlugin, Chain, PolicyConfig, hookimpl
from jackfield.core.testing.naive_index import NaiveIndex

UNKNOWN = 10**9
"""No block has such an id."""


class ForeignIds(NaiveIndex):
    """Finds blocks that nobody ever had."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        return [UNKNOWN + index for index in range(start, len(chain))]


class AnySpace(NaiveIndex):
    """Finds blocks of equal tokens, whosever they are."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        found: list[int] = []
        for index in range(start, len(chain)):
            tokens = chain.tokens[index * self._width : (index + 1) * self._width]
            block = next((b for b, one in self.known.items() if one.tokens == tokens), None)
            if block is None:
                break
            found.append(block)
        return found


class AnyTokens(NaiveIndex):
    """Finds the blocks that it knows, whatever is asked."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        return list(self.known)[: len(chain) - start]


class TooLong(NaiveIndex):
    """Finds more than was asked for."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        return [*super().match(chain, start, parent), *self.known, *range(len(chain) + 1)]


class Duplicates(NaiveIndex):
    """Finds the first block in every place."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        return list(super().match(chain, start, parent))[:1] * (len(chain) - start)


class Backwards(NaiveIndex):
    """Finds the right blocks in the wrong places."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        return list(super().match(chain, start, parent))[::-1]


class NeverForgets(NaiveIndex):
    """Finds blocks that are gone, and those that took their place."""

    def remove(self, block: int) -> None:
        return


class Nothing(NaiveIndex):
    """Does not answer."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Any:
        return None


class NoIds(NaiveIndex):
    """Finds what is no number of a block."""

    def match(self, chain: Chain, start: int, parent: int | None) -> Any:
        return ["a", None, True, 1.5, -1, 2**70][: len(chain) - start]


class Writes(NaiveIndex):
    """Answers with what it changes later."""

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size)
        self._answer: list[int] = []

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        self._answer[:] = super().match(chain, start, parent)
        return self._answer


class Raises(NaiveIndex):
    """Finds nothing, loudly."""

    def match(self, chain: Chain, start: int, parent: int | None) -> NoReturn:
        raise RuntimeError("match failed")


class RaisesOnInsert(NaiveIndex):
    """Wants to know of nothing."""

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        raise RuntimeError("insert failed")


class RaisesOnRemove(NaiveIndex):
    """Lets nothing go."""

    def remove(self, block: int) -> None:
        raise RuntimeError("remove failed")


HOSTILE: Mapping[str, Callable[[int], BlockIndex]] = {
    kind.__name__: kind
    for kind in (
        ForeignIds, AnySpace, AnyTokens, TooLong, Duplicates, Backwards, NeverForgets, Nothing,
        NoIds, Writes, Raises, RaisesOnInsert, RaisesOnRemove,
    )
}  # fmt: skip
"""By name: block_size -> an index that lies."""


class HostileConfig(PolicyConfig):
    """index: a name in `HOSTILE`."""

    index: str = Raises.__name__


class HostileIdentity(CachePlugin):
    """A plugin with such an index."""

    Config = HostileConfig
    axis = CacheAxis.IDENTITY

    @hookimpl
    def identity(self, block_size: int) -> BlockIndex:
        """As the configuration names it."""
        return HOSTILE[self.config.index](block_size)
