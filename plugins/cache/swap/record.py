"""How a block looks in a file: a header, then its bytes.

The checksum covers the other fields and the bytes. One of the fields is a number that each store
makes for itself, so that a record of another run is none of ours.
"""

from secrets import token_bytes
from struct import Struct
from zlib import crc32

MAGIC = b"jkvblock"
VERSION = 1
RUN_BYTES = 16
FIELDS = Struct(f"<8sIIQ{RUN_BYTES}s")
CHECKSUM = Struct("<I")
HEADER_BYTES = FIELDS.size + CHECKSUM.size


class Unsound(Exception):
    """A file does not hold the block that was stored there."""


class Seal:
    """Makes and checks the headers of one store's records."""

    def __init__(self) -> None:
        self._run = token_bytes(RUN_BYTES)

    def header(self, slot: int, data: memoryview) -> bytes:
        """What stands before the bytes of a block."""
        fields = FIELDS.pack(MAGIC, VERSION, slot, len(data), self._run)
        return fields + CHECKSUM.pack(crc32(data, crc32(fields)))

    def check(self, header: bytes, slot: int, data: memoryview) -> None:
        """Raise `Unsound`, with the reason, unless these are exactly what was stored."""
        if header != self.header(slot, data):
            raise Unsound(self._reason(header, slot, data))

    def _reason(self, header: bytes, slot: int, data: memoryview) -> str:
        magic, version, found_slot, length, run = FIELDS.unpack_from(header)
        if magic != MAGIC:
            return "is no block of a cache"
        if version != VERSION:
            return f"is written in version {version} of the format, not in {VERSION}"
        if run != self._run:
            return "was written by another engine"
        if length != len(data):
            return f"holds {length:,} bytes, not {len(data):,}"
        if found_slot != slot:
            return f"holds slot {found_slot}, not {slot}"
        return "was changed after it was written"
