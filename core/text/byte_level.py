"""The alphabet of byte-level BPE: one printable character for each of the 256 bytes."""

from collections.abc import Mapping
from types import MappingProxyType


def _alphabet() -> dict[str, int]:
    # Printable Latin-1 stands for itself; the other bytes follow from U+0100 on, in order.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    mapped = {chr(byte): byte for byte in printable}
    return mapped | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_OF: Mapping[str, int] = MappingProxyType(_alphabet())


def token_bytes(token: str) -> bytes:
    """The bytes of a token; one with a character outside the alphabet is taken as UTF-8."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode()
