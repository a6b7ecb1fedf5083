"""A tier's store, and the checksums of what it holds."""

from zlib import crc32

from torch import Tensor

from jackfield.core.api import DirectStore, TierStore

NO_SUM = "nothing is known of what the slot holds"
CHANGED = "the bytes are not those that were stored: checksum {:08x} instead of {:08x}"


class Damaged(Exception):
    """What a store gave is not what it was given."""


class CheckedStore:
    """All access to one store. Checksums stay in memory, out of the store's reach.

    A slot whose `put` failed has no checksum, so that a checked `get` of it fails.
    """

    def __init__(self, store: TierStore) -> None:
        self._store = store
        self._sums: dict[int, int] = {}

    def put(self, slot: int, data_B: Tensor, checked: bool) -> None:
        """Store, and keep the checksum if wanted."""
        self._sums.pop(slot, None)
        checksum = checksum_of(data_B) if checked else None
        self._store.put(slot, data_B)
        if checksum is not None:
            self._sums[slot] = checksum

    def get(self, slot: int, into_B: Tensor, checked: bool) -> None:
        """Read, and compare with the checksum if there is one. checked: there must be one."""
        expected = self._expected(slot, checked)
        self._store.get(slot, into_B)
        _compare(into_B, expected)

    def _expected(self, slot: int, checked: bool) -> int | None:
        expected = self._sums.get(slot)
        if checked and expected is None:
            raise Damaged(NO_SUM)
        return expected

    @property
    def is_direct(self) -> bool:
        """Whether the core may copy to and from the store's own memory."""
        return isinstance(self._store, DirectStore)

    def target(self, slot: int) -> Tensor:
        """Where the slot's next bytes go. `seal` follows once they are there."""
        assert isinstance(self._store, DirectStore)
        self._sums.pop(slot, None)
        return self._store.target(slot)

    def seal(self, slot: int, data_B: Tensor, checked: bool) -> None:
        """Keep the checksum of what is in the slot now, if wanted."""
        if checked:
            self._sums[slot] = checksum_of(data_B)

    def source(self, slot: int, checked: bool) -> Tensor:
        """The slot's bytes where they are, compared as `get` does."""
        assert isinstance(self._store, DirectStore)
        expected = self._expected(slot, checked)
        data_B = self._store.source(slot)
        _compare(data_B, expected)
        return data_B

    def drop(self, slot: int) -> None:
        """Forget the slot's content."""
        self._sums.pop(slot, None)
        self._store.drop(slot)

    def close(self) -> None:
        """Give the store back."""
        self._store.close()


def _compare(data_B: Tensor, expected: int | None) -> None:
    found = None if expected is None else checksum_of(data_B)
    if found != expected:
        raise Damaged(CHANGED.format(found, expected))


def checksum_of(data_B: Tensor) -> int:
    """CRC-32. Its cost is that of reading the bytes a few times; Python's lock is not held."""
    return crc32(data_B.numpy().data)
