"""A run of blocks that follow each other and have one way on: a compressed edge of the tree."""

from jackfield.core.api import Chain


class Run:
    """Blocks of one space from the block `start` of their sequences on.

    before: the run that ends where this one begins; None for the root, which is empty. children:
    space and first block of tokens of a run -> the run.
    """

    __slots__ = ("before", "children", "ids", "space", "start", "tokens")

    def __init__(self, before: "Run | None", space: bytes, start: int) -> None:
        self.before = before
        self.space = space
        self.start = start
        self.ids: list[int] = []
        self.tokens = bytearray()
        self.children: dict[bytes, Run] = {}

    @property
    def end(self) -> int:
        """The first block of the sequence after the run."""
        return self.start + len(self.ids)

    def add(self, block: int, tokens: bytes) -> None:
        """One block more at the end."""
        self.ids.append(block)
        self.tokens += tokens

    def shared(self, chain: Chain, at: int, width: int, most: int) -> int:
        """How many blocks, up to `most`, are those of the chain, from the block `at` of both on.

        width: bytes of tokens per block.
        """
        low, high = 0, min(self.end - at, most)
        own, its = (at - self.start) * width, at * width
        step = high
        while low < high:  # first all of them, then halves
            a, b = low * width, (low + step) * width
            if self.tokens[own + a : own + b] == chain.tokens[its + a : its + b]:
                low += step
            else:
                high = low + step - 1
            step = (high - low + 1) // 2
        return low

    def cut(self, count: int, width: int) -> "Run":
        """The first `count` blocks as a run of their own, between this one and that before."""
        head = Run(self.before, self.space, self.start)
        head.ids, head.tokens = self.ids[:count], self.tokens[: count * width]
        del self.ids[:count], self.tokens[: count * width]
        self.start += count
        self.before = head
        return head

    def shed(self, count: int, width: int) -> "Run":
        """The blocks from number `count` on, and all that follows, as a run of their own."""
        tail = Run(self, self.space, self.start + count)
        tail.ids, tail.tokens = self.ids[count:], self.tokens[count * width :]
        del self.ids[count:], self.tokens[count * width :]
        tail.children, self.children = self.children, {}
        for child in tail.children.values():
            child.before = tail
        return tail
