"""The thread of one tier, and what only this thread uses."""

from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from threading import Thread

import torch
from torch import Tensor

from jackfield.core.api import TierStore
from jackfield.core.executors.transfer_ledger import Ledger
from jackfield.core.executors.transfer_store import CheckedStore
from jackfield.core.host.loader import cause
from jackfield.core.kv.transfers import Transfer

STAGING_BYTES = 32 * 2**20
"""What one batch of a tier takes at most, unless one block is more."""
MOST_BLOCKS = 64
MOST_WAITING = 100_000
"""Orders that may wait for a tier; with more it is taken for one that hangs."""
Job = Callable[[], None]


class Lane:
    """Runs the jobs of a tier in order, one at a time. The store is used in this thread alone.

    The thread does not keep the process alive: a store may hang for ever.
    """

    def __init__(
        self,
        name: str,
        store: TierStore,
        ledger: Ledger,
        block_bytes: int,
        pinned: bool,
        device: torch.device,
    ) -> None:
        self.name = name
        self.store = CheckedStore(store)
        self.is_direct = pinned and self.store.is_direct
        self._ledger = ledger
        self._submitted = 0
        self._done = 0
        staged = min(max(STAGING_BYTES // block_bytes, 1), MOST_BLOCKS)
        self.num_rows = MOST_BLOCKS if self.is_direct else staged
        self._block_bytes = block_bytes
        self._pinned = pinned
        self._device = device
        self._staging: Tensor | None = None
        self._jobs: SimpleQueue[tuple[int, Job] | None] = SimpleQueue()
        self.is_closing = False
        self._thread = Thread(target=self._run, name=f"jackfield-tier-{name}", daemon=True)
        self._thread.start()

    def submit(self, job: Job, num_orders: int = 0) -> None:
        """Run this after all that was submitted before. It contains what it raises.

        num_orders: that it stands for; told by the engine's thread only.
        """
        self._submitted += num_orders
        self._jobs.put((num_orders, job))

    @property
    def is_full(self) -> bool:
        """Whether so many orders wait that no more should be given."""
        return self._submitted - self._done >= MOST_WAITING

    def staging(self) -> Tensor:
        """The lane's own buffer on the host, [num_rows, block_bytes]."""
        if self._staging is None:
            self._staging = new_buffer(self.num_rows, self._block_bytes, self._pinned)
        return self._staging

    def attempt(self, order: Transfer, what: str, act: Callable[[], object]) -> bool:
        """Whether the transfer was open, and this did not fail. A failure is its end.

        When the lane is closing, nothing is attempted any more.
        """
        if self.is_closing or not self._ledger.is_open(order.number):
            return False
        try:
            act()
        except BaseException as error:  # a plugin must not end the thread, whatever it raises
            self.fail([order], what, error)
            return False
        return True

    def rows(
        self, orders: Iterable[Transfer], what: str, find: Callable[[Transfer], Tensor]
    ) -> list[tuple[Transfer, Tensor]]:
        """The memory of each order that is open; where it is not found, the order has failed.

        what: of the message, with a place for the slot.
        """
        found: list[tuple[Transfer, Tensor]] = []
        for order in orders:
            add = partial(_add, found, order, find)
            self.attempt(order, what.format(order.slot), add)
        return found

    def fail(self, orders: Iterable[Transfer], what: str, error: BaseException) -> None:
        """End all of them that are open."""
        for order in orders:
            self._ledger.end(order.number, f"tier {self.name!r}: {what}: {cause(error)}")

    def stop(self) -> None:
        """Drop what waits, and give the store back once the running job is over."""
        self.is_closing = True
        self._jobs.put(None)

    def join(self, seconds: float) -> None:
        """Wait for that, or so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        if self._device.type == "cuda" and self._device.index:
            # Each thread begins with the first GPU, and would take memory of it.
            torch.cuda.set_device(self._device)
        while (entry := self._jobs.get()) is not None:
            num_orders, job = entry
            if not self.is_closing:
                job()
            del entry, job  # or they would live until the next one comes
            self._done += num_orders
        self._staging = None
        self.store.close()


def _add(
    found: list[tuple[Transfer, Tensor]], order: Transfer, find: Callable[[Transfer], Tensor]
) -> None:
    found.append((order, find(order)))


def new_buffer(num_rows: int, block_bytes: int, pinned: bool) -> Tensor:
    """Memory of the host for blocks, as bytes."""
    return torch.empty((num_rows, block_bytes), dtype=torch.uint8, pin_memory=pinned)
