"""Runs the transfers that the engine orders: between the pool and the tiers, and between tiers.

Shape suffixes: N blocks of a batch, B bytes of a block.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from torch import Tensor

from jackfield.core.api import TierStore
from jackfield.core.executors.transfer_lane import Lane
from jackfield.core.executors.transfer_ledger import Ledger
from jackfield.core.executors.transfer_spills import Spills
from jackfield.core.kv.copier import BlockCopier
from jackfield.core.kv.transfers import Transfer, TransferEnd, TransferKind

CLOSING_SECONDS = 2.0
"""How long all tiers together may take to give everything back."""
NOT_STORED = "slot {} could not be stored"
NOT_READ = "slot {} could not be read"
SILENT = "too many transfers wait for it already; it does not answer, or is far too slow"
Work = Callable[[Lane, Sequence[Transfer], Any], None]


class NoTransfers:
    """For an engine without tiers."""

    def transfer(self, orders: Sequence[Transfer]) -> None:
        """Nothing is ever ordered."""
        assert not orders, "a transfer was ordered, but there is no tier"

    def transferred(self) -> Sequence[TransferEnd]:
        """Nothing ever ends."""
        return ()

    def await_transfer(self, seconds: float) -> None:
        """Nothing ends before the time is over."""
        time.sleep(seconds)

    def cancel_transfers(self, numbers: Sequence[int]) -> Sequence[int]:
        """None is under way."""
        return ()

    def close(self) -> None:
        """Nothing is held."""


class Transfers:
    """One thread per tier runs the orders of that tier, those of one kind in batches.

    A tier that is slow, that raises or that never answers costs the transfers of that tier and
    nothing else. The methods are those of an `Executor`, and none of them waits for a tier.
    """

    def __init__(
        self, copier: BlockCopier, stores: Mapping[str, TierStore], *, pinned: bool = False
    ) -> None:
        self._copier = copier
        self._ledger = Ledger()
        self._lanes = {
            name: Lane(name, store, self._ledger, copier.block_bytes, pinned, copier.device)
            for name, store in stores.items()
        }
        self._spills = Spills(self._lanes, self._ledger, copier.block_bytes)

    def transfer(self, orders: Sequence[Transfer]) -> None:
        """Start these copies, after the steps submitted so far."""
        self._ledger.open(o.number for o in orders if o.kind is not TransferKind.DROP)
        mark = self._copier.mark() if orders else None
        for name in dict.fromkeys(order.tier for order in orders):
            mine = [order for order in orders if order.tier == name]
            for kind, run in groupby(mine, key=lambda order: order.kind):
                self._start(self._lanes[name], kind, list(run), mark)

    def _start(self, lane: Lane, kind: TransferKind, orders: list[Transfer], mark: Any) -> None:
        if lane.is_full or (kind is TransferKind.SPILL and self._spills.is_full(lane.name)):
            for order in orders:
                self._ledger.end(order.number, f"tier {lane.name!r}: {SILENT}")
        elif kind is TransferKind.SPILL:
            self._spills.start(orders)
        elif kind is TransferKind.DROP:
            lane.submit(partial(_drop, lane, orders), len(orders))
        else:
            work = self._work(kind, lane.is_direct)
            lane.submit(partial(self._in_batches, work, lane, orders, mark), len(orders))

    def _work(self, kind: TransferKind, direct: bool) -> Work:
        if kind is TransferKind.STORE:
            return self._store_direct if direct else self._store
        return self._load_direct if direct else self._load

    def transferred(self) -> Sequence[TransferEnd]:
        """Those that ended since the last call."""
        return self._ledger.take()

    def await_transfer(self, seconds: float) -> None:
        """Wait until a transfer ends that was not told yet, or so long."""
        self._ledger.wait(seconds)

    def cancel_transfers(self, numbers: Sequence[int]) -> Sequence[int]:
        """Give up those that do not touch the device any more, or not yet."""
        return self._ledger.cancel(numbers)

    def close(self) -> None:
        """Stop all threads, but for those of stores that do not return."""
        until = time.monotonic() + CLOSING_SECONDS
        for lane in self._lanes.values():
            lane.stop()
        for lane in self._lanes.values():
            lane.join(max(until - time.monotonic(), 0.0))

    def _in_batches(self, work: Work, lane: Lane, orders: Sequence[Transfer], mark: Any) -> None:
        for batch in _batches(orders, lane.num_rows):
            if lane.is_closing:
                return
            try:
                work(lane, batch, mark)
            except BaseException as error:  # whatever a plugin raises, its thread goes on
                lane.fail(batch, "the copy failed", error)

    def _store(self, lane: Lane, orders: Sequence[Transfer], mark: Any) -> None:
        staging_NB = lane.staging()
        numbers = self._ledger.touch(order.number for order in orders)
        live = [order for order in orders if order.number in numbers]
        if not live:
            return
        self._copier.gather([order.block for order in live], staging_NB[: len(live)], mark)
        self._ledger.leave(numbers)
        for row, order in enumerate(live):
            data_B = staging_NB[row]
            put = partial(lane.store.put, order.slot, data_B, order.checked)
            if lane.attempt(order, NOT_STORED.format(order.slot), put):
                self._ledger.end(order.number)

    def _store_direct(self, lane: Lane, orders: Sequence[Transfer], mark: Any) -> None:
        """Into the memory of the store."""
        store = lane.store
        found = lane.rows(orders, NOT_STORED, lambda order: store.target(order.slot))
        live = self._touch(found)
        if not live:
            return
        self._copier.gather([order.block for order, _ in live], [row for _, row in live], mark)
        self._ledger.leave(order.number for order, _ in live)
        for order, row_B in live:
            seal = partial(store.seal, order.slot, row_B, order.checked)
            if lane.attempt(order, NOT_STORED.format(order.slot), seal):
                self._ledger.end(order.number)

    def _load_direct(self, lane: Lane, orders: Sequence[Transfer], mark: Any) -> None:
        store = lane.store
        found = lane.rows(orders, NOT_READ, lambda order: store.source(order.slot, order.checked))
        live = self._touch(found)
        if not live:
            return
        self._copier.scatter([order.block for order, _ in live], [row for _, row in live], mark)
        for order, _ in live:
            self._ledger.end(order.number)

    def _touch(self, found: list[tuple[Transfer, Tensor]]) -> list[tuple[Transfer, Tensor]]:
        numbers = self._ledger.touch(order.number for order, _ in found)
        return [one for one in found if one[0].number in numbers]

    def _load(self, lane: Lane, orders: Sequence[Transfer], mark: Any) -> None:
        staging_NB = lane.staging()
        found: list[Transfer] = []
        for order in orders:
            into_B = staging_NB[len(found)]
            get = partial(lane.store.get, order.slot, into_B, order.checked)
            if lane.attempt(order, NOT_READ.format(order.slot), get):
                found.append(order)
        numbers = self._ledger.touch(order.number for order in found)
        rows = [row for row, order in enumerate(found) if order.number in numbers]
        if not rows:
            return
        data_NB = staging_NB[: len(rows)] if len(rows) == len(found) else staging_NB[rows]
        self._copier.scatter([found[row].block for row in rows], data_NB, mark)
        for row in rows:
            self._ledger.end(found[row].number)


def _drop(lane: Lane, orders: Iterable[Transfer]) -> None:
    for order in orders:
        # It has no end that could tell of a failure, and the next `put` shows whether it matters.
        with suppress(BaseException):
            lane.store.drop(order.slot)


def _batches(orders: Sequence[Transfer], size: int) -> Iterator[Sequence[Transfer]]:
    for start in range(0, len(orders), size):
        yield orders[start : start + size]
