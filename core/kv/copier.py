"""Copies of whole blocks, whatever tensors a layout keeps them in.

A block is the bytes of all tensors of all layers, one after another. They are moved as integers of
the widest type that fits all of them, since not every operation knows every element type, and
since single bytes are slow to move.

Shape suffixes: N blocks of a batch, B bytes of a block, W words of a block.
"""

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor

from jackfield.core.api import KvLayer
from jackfield.core.kv.transfers import BlockCopy

WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
SCRATCH_BYTES = 64 * 2**20
"""What a GPU keeps for blocks on their way, or one block if that is more."""
Rows = Tensor | Sequence[Tensor]
"""Blocks on the host: one buffer, `[N, ...]`, or a tensor for each block."""


class BlockCopier:
    """Moves blocks inside a pool, to the host and back.

    `copy` belongs to the thread that submits steps, as `mark` does; `gather` and `scatter` may be
    called from any thread, and wait.
    """

    def __init__(self, layers: Sequence[KvLayer], device: torch.device) -> None:
        rows = [_rows(tensor) for layer in layers for tensor in layer.tensors.values()]
        sizes = [row.shape[1] for row in rows]
        self._word = next(
            word for word in WORDS if all(size % word.itemsize == 0 for size in sizes)
        )
        self._parts = _Parts([row.view(self._word) for row in rows])
        self.block_bytes = sum(sizes)
        self.device = device
        self._road: _Road = _Straight() if device.type == "cpu" else _SideStream(device, self)

    def room(self, num_blocks: int, device: torch.device) -> Tensor:
        """New memory for so many blocks, as words."""
        num_words = self.block_bytes // self._word.itemsize
        return torch.empty((num_blocks, num_words), dtype=self._word, device=device)

    def mark(self) -> Any:
        """The point up to which steps have been submitted."""
        return self._road.mark()

    @torch.inference_mode()
    def copy(self, copies: Sequence[BlockCopy]) -> None:
        """Blocks of the pool over others, after the steps submitted so far.

        All are read before the first is written. No block may be the target of two copies.
        """
        targets = [copy.target for copy in copies]
        assert len(set(targets)) == len(targets), "two blocks are copied over one"
        sources_N = self._road.index([copy.source for copy in copies])
        targets_N = self._road.index(targets)
        for part in self._parts.all:
            part.index_copy_(0, targets_N, part.index_select(0, sources_N))

    @torch.inference_mode()
    def gather(self, blocks: Sequence[int], into_NB: Rows, after: Any = None) -> None:
        """The bytes of blocks, in order, into memory of the host; they are there on return.

        into_NB: uint8, contiguous, one row per block. after: a `mark` to wait for.
        """
        self._road.gather(self._parts, blocks, self._words(into_NB, len(blocks)), after)

    @torch.inference_mode()
    def scatter(self, blocks: Sequence[int], data_NB: Rows, after: Any = None) -> None:
        """The reverse: afterwards the blocks hold these bytes. Each block is named once."""
        self._road.scatter(self._parts, blocks, self._words(data_NB, len(blocks)), after)

    def _words(self, rows_NB: Rows, count: int) -> Rows:
        assert len(rows_NB) == count and all(len(row) == self.block_bytes for row in rows_NB[:1])
        if isinstance(rows_NB, Tensor):
            return rows_NB.view(self._word)
        return [row_B.view(self._word) for row_B in rows_NB]


def _rows(tensor: Tensor) -> Tensor:
    """The tensor as bytes, one row per block, on the same memory."""
    assert tensor.is_contiguous(), "a tensor of the pool is not contiguous"
    return tensor.view(tensor.shape[0], -1).view(torch.uint8)


class _Parts:
    """The tensors of a pool as words, each `[num_blocks, words of one block]`."""

    def __init__(self, parts: Sequence[Tensor]) -> None:
        self.all = parts

    def read(self, index_N: Tensor, into_NW: Tensor) -> None:
        start = 0
        for part in self.all:
            end = start + part.shape[1]
            torch.index_select(part, 0, index_N, out=into_NW[:, start:end])
            start = end

    def write(self, index_N: Tensor, data_NW: Tensor) -> None:
        start = 0
        for part in self.all:
            end = start + part.shape[1]
            part.index_copy_(0, index_N, data_NW[:, start:end])
            start = end


class _Road(Protocol):
    """The way between a device and the host. What differs from one device to another."""

    def mark(self) -> Any: ...

    def index(self, blocks: Sequence[int]) -> Tensor: ...

    def gather(self, parts: _Parts, blocks: Sequence[int], into_NW: Rows, after: Any) -> None: ...

    def scatter(self, parts: _Parts, blocks: Sequence[int], data_NW: Rows, after: Any) -> None: ...


class _Straight:
    """On a CPU, where a step is over when `forward` returns."""

    def mark(self) -> None:
        return None

    def index(self, blocks: Sequence[int]) -> Tensor:
        return torch.tensor(blocks)

    def gather(self, parts: _Parts, blocks: Sequence[int], into_NW: Rows, after: None) -> None:
        for some, rows_NW in _whole(blocks, into_NW):
            parts.read(self.index(some), rows_NW)

    def scatter(self, parts: _Parts, blocks: Sequence[int], data_NW: Rows, after: None) -> None:
        for some, rows_NW in _whole(blocks, data_NW):
            parts.write(self.index(some), rows_NW)


class _SideStream:
    """On a GPU: a stream beside that of the steps, and a buffer between pool and host.

    The stream waits for the mark, so that what a step still writes is never read, nor what it
    still reads overwritten. One batch at a time: all share the way to the host.
    """

    def __init__(self, device: torch.device, copier: BlockCopier) -> None:
        self._device = device
        self._copier = copier
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._lock = Lock()
        self._scratch: Tensor | None = None

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def index(self, blocks: Sequence[int]) -> Tensor:
        # From memory that is not pinned the copy would wait for all steps under way.
        return torch.tensor(blocks).pin_memory().to(self._device, non_blocking=True)

    def gather(self, parts: _Parts, blocks: Sequence[int], into_NW: Rows, after: Any) -> None:
        with self._lock, torch.cuda.stream(self._stream):
            self._await(after)
            room_NW = self._room()
            for start in range(0, len(blocks), len(room_NW)):
                some = blocks[start : start + len(room_NW)]
                parts.read(self.index(some), room_NW[: len(some)])
                _copy(into_NW[start : start + len(some)], room_NW[: len(some)])
            self._finish()

    def scatter(self, parts: _Parts, blocks: Sequence[int], data_NW: Rows, after: Any) -> None:
        with self._lock, torch.cuda.stream(self._stream):
            self._await(after)
            room_NW = self._room()
            for start in range(0, len(blocks), len(room_NW)):
                some = blocks[start : start + len(room_NW)]
                _copy(room_NW[: len(some)], data_NW[start : start + len(some)])
                parts.write(self.index(some), room_NW[: len(some)])
            self._finish()

    def _await(self, after: Any) -> None:
        if after is not None:
            self._stream.wait_event(after)

    def _room(self) -> Tensor:
        if self._scratch is None:
            num_blocks = max(SCRATCH_BYTES // self._copier.block_bytes, 1)
            self._scratch = self._copier.room(num_blocks, self._device)
        return self._scratch

    def _finish(self) -> None:
        """Sleep until the stream is done; spinning would take a core from the engine."""
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record(self._stream)
        done.synchronize()


def _whole(blocks: Sequence[int], rows_NW: Rows) -> Iterable[tuple[Sequence[int], Tensor]]:
    if isinstance(rows_NW, Tensor):
        return [(blocks, rows_NW)]
    return [([block], row_W[None]) for block, row_W in zip(blocks, rows_NW, strict=True)]


def _copy(into: Rows, data: Rows) -> None:
    """Begin the copy; row by row unless both are whole."""
    if isinstance(into, Tensor) and isinstance(data, Tensor):
        into.copy_(data, non_blocking=True)
        return
    for into_W, data_W in zip(into, data, strict=True):
        into_W.copy_(data_W, non_blocking=True)
