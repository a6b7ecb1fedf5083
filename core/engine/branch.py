"""The levels of the scheduling tree: which discipline orders below which class."""

from collections.abc import Hashable, Iterator, Mapping, Sequence

from jackfield.core.engine.level import Level

NO_BRANCHES: "Mapping[str, Branch]" = {}


class Branch:
    """One level and what is below it; the last one on each way down is a leaf.

    inner: class key as text -> the levels below that class. other: those below all other classes;
    None = this level is a leaf.
    """

    __slots__ = ("inner", "level", "other")

    def __init__(
        self,
        level: Level,
        other: "Branch | None" = None,
        inner: "Mapping[str, Branch]" = NO_BRANCHES,
    ) -> None:
        assert other is not None or not inner, "a leaf has no branches"
        self.level = level
        self.other = other
        self.inner = inner

    @staticmethod
    def chain(levels: Sequence[Level]) -> "Branch":
        """The same levels below every class, from the root to the leaf."""
        assert levels, "a stack has at least one level"
        branch: Branch | None = None
        for level in reversed(levels):
            branch = Branch(level, branch)
        assert branch is not None
        return branch

    def below(self, key: Hashable) -> "Branch":
        """The levels below a class. Not called on a leaf."""
        assert self.other is not None
        if not self.inner:
            return self.other
        return self.inner.get(_text(key), self.other)

    def levels(self) -> Iterator[Level]:
        """This level and all below it, each once, the upper ones first."""
        yield self.level
        for branch in (*self.inner.values(), *([self.other] if self.other else ())):
            yield from branch.levels()


def _text(key: Hashable) -> str:
    """The key as a configuration names it; what cannot be printed has no branch of its own."""
    try:
        return str(key)
    except Exception:
        return ""
