"""Copies from a tier to the one below, which never touch the device."""

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from threading import Lock

from torch import Tensor

from jackfield.core.executors.transfer_lane import MOST_WAITING, Lane, new_buffer
from jackfield.core.executors.transfer_ledger import Ledger
from jackfield.core.kv.transfers import Transfer

NUM_BUFFERS = 2
"""Per lower tier: one is filled while the other is emptied."""


class _Queue:
    """Spills into one tier that wait for a buffer, and the buffers that are free."""

    def __init__(self) -> None:
        self.waiting: deque[Transfer] = deque()
        self.free: list[Tensor] = []
        self.num_made = 0


class Spills:
    """Each spill is read in the thread of the upper tier, then written in that of the lower.

    A spill has its buffer before it is queued, and keeps it until it is written. So no thread
    waits for another one: a lower tier that hangs stops its own spills, and not the reads of the
    tier above. Orders in between do not matter: until a spill has ended, nothing else is ordered
    for its two slots.
    """

    def __init__(self, lanes: Mapping[str, Lane], ledger: Ledger, block_bytes: int) -> None:
        self._lanes = lanes
        self._ledger = ledger
        self._block_bytes = block_bytes
        self._queues = {name: _Queue() for name in lanes}
        self._lock = Lock()

    def is_full(self, tier: str) -> bool:
        """Whether so many wait that no more should be given."""
        return len(self._queues[tier].waiting) >= MOST_WAITING

    def start(self, orders: Sequence[Transfer]) -> None:
        """Begin, or queue for a buffer."""
        for order in orders:
            queue = self._queues[order.tier]
            with self._lock:
                queue.waiting.append(order)
            self._next(queue)

    def _next(self, queue: _Queue) -> None:
        """Read as many as there are buffers for. Called from all threads."""
        with self._lock:
            while queue.waiting and (queue.free or queue.num_made < NUM_BUFFERS):
                order = queue.waiting.popleft()
                if self._ledger.is_open(order.number):
                    read = partial(self._read, queue, order, self._buffer(queue))
                    self._lanes[order.above].submit(read)

    def _buffer(self, queue: _Queue) -> Tensor:
        if not queue.free:
            queue.num_made += 1
            return new_buffer(1, self._block_bytes, pinned=False)[0]
        return queue.free.pop()

    def _read(self, queue: _Queue, order: Transfer, buffer_B: Tensor) -> None:
        """In the thread of the upper tier."""
        above = self._lanes[order.above]
        get = partial(above.store.get, order.block, buffer_B, False)
        if above.attempt(order, f"slot {order.block} could not be read", get):
            self._lanes[order.tier].submit(partial(self._write, queue, order, buffer_B))
        else:
            self._give_back(queue, buffer_B)

    def _write(self, queue: _Queue, order: Transfer, buffer_B: Tensor) -> None:
        """In the thread of the lower tier. The bytes are those of the upper one: it was checked."""
        below = self._lanes[order.tier]
        put = partial(below.store.put, order.slot, buffer_B, order.checked)
        if below.attempt(order, f"slot {order.slot} could not be stored", put):
            self._ledger.end(order.number)
        self._give_back(queue, buffer_B)

    def _give_back(self, queue: _Queue, buffer_B: Tensor) -> None:
        with self._lock:
            queue.free.append(buffer_B)
        self._next(queue)
