"""Blocks found by their tokens, in a tree: an identity without hashes.

Source: RadixAttention (Zheng et al., SGLang: Efficient Execution of Structured Language Model
Programs, NeurIPS 2024).
"""

from collections.abc import Sequence

from jackfield.core.api import (
    TOKEN_BYTES,
    BlockIndex,
    CacheAxis,
    CachePlugin,
    Chain,
    hookimpl,
)
from jackfield.plugins.cache.radix.run import Run

JOINED = 64
"""A run is joined with the only one that follows if either has at most so many blocks: a prefix
whose branches come and go would cost its whole length each time."""


class RadixTree:
    """A radix tree over whole blocks of tokens; no walk recurses. A `BlockIndex`."""

    def __init__(self, block_size: int) -> None:
        self._width = block_size * TOKEN_BYTES
        self._root = Run(None, b"", 0)
        self._runs: dict[int, Run] = {}

    def match(self, chain: Chain, start: int, parent: int | None) -> Sequence[int]:
        """One look-up and one comparison per run."""
        run = self._root if parent is None else self._runs.get(parent)
        found: list[int] = []
        tokens, width, at = chain.tokens, self._width, start
        if run is None:
            return found
        behind = run.end
        for end, space in chain.spaces:
            end = min(end, len(chain))
            while at < end:
                if at == behind:
                    child = run.children.get(space + tokens[at * width : at * width + width])
                    if child is None:
                        return found
                    run, behind = child, at + len(child.ids)
                elif run.space != space:
                    return found
                most = min(behind, end) - at
                count = 1 if behind - run.start == 1 else run.shared(chain, at, width, most)
                found += run.ids[at - run.start : at - run.start + count]
                at += count
                if count < most:
                    return found
        return found

    def insert(
        self, block: int, parent: int | None, space: bytes, key: bytes, tokens: bytes
    ) -> None:
        """The key is not used."""
        run = self._root if parent is None else self._ending_with(parent)
        if run.children or run.space != space or run is self._root:
            before, run = run, Run(run, space, run.end)
            before.children[space + tokens] = run
        run.add(block, tokens)
        self._runs[block] = run

    def _ending_with(self, block: int) -> Run:
        """The run whose last block this is. A longer one is split behind the block."""
        run = self._runs[block]
        if run.ids[-1] == block:
            return run
        count = run.ids.index(block) + 1
        if count < len(run.ids) - count + len(run.children):
            head = run.cut(count, self._width)
            self._put(head)
            self._follow(head, run)
            return self._settle(head)
        tail = run.shed(count, self._width)
        self._follow(run, tail)
        self._settle(tail)
        return run

    def _follow(self, run: Run, child: Run) -> None:
        run.children[child.space + child.tokens[: self._width]] = child

    def _put(self, run: Run) -> None:
        """The run is where its first block was."""
        assert run.before is not None, "nothing is before the root"
        self._follow(run.before, run)

    def _settle(self, run: Run) -> Run:
        self._runs.update(dict.fromkeys(run.ids, run))
        return run

    def remove(self, block: int) -> None:
        """It is the last one of its run."""
        run = self._runs.pop(block)
        assert run.ids[-1] == block and not run.children, f"block {block} has a child"
        if len(run.ids) == 1:
            self._free(run)
        else:
            run.ids.pop()
            del run.tokens[-self._width :]

    def _free(self, run: Run) -> None:
        before = run.before
        assert before is not None, "the root has no blocks"
        del before.children[run.space + run.tokens]
        if len(before.children) == 1 and before is not self._root:
            self._join(before, *before.children.values())

    def _join(self, run: Run, child: Run) -> None:
        """Make one run of two, if they are of one space and not both long."""
        shorter = min(len(run.ids), len(child.ids) + len(child.children))
        if run.space != child.space or shorter > JOINED:
            return
        if len(run.ids) == shorter:
            child.ids[:0], child.tokens[:0] = run.ids, run.tokens
            child.start, child.before = run.start, run.before
            self._put(child)
            self._runs.update(dict.fromkeys(run.ids, child))
        else:
            run.ids += child.ids
            run.tokens += child.tokens
            run.children = child.children
            for grandchild in run.children.values():
                grandchild.before = run
            self._runs.update(dict.fromkeys(child.ids, run))

    def __len__(self) -> int:
        return len(self._runs)


class Radix(CachePlugin):
    """Requests share the full blocks of equal prefixes, found by comparing tokens.

    Guarantee: a prefix that is cached is found as far as it is cached without a gap; no two
    prefixes are ever taken for each other.
    """

    axis = CacheAxis.IDENTITY

    @hookimpl
    def identity(self, block_size: int) -> BlockIndex:
        """A tree whose edges are whole blocks of that size."""
        return RadixTree(block_size)
