"""Keys of blocks: a chain of hashes over tokens, made wherever there is time for it."""

import sys
from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from jackfield.core.api import KEY_BYTES, TOKEN_BYTES

WORD = "I"  # of 4 bytes wherever CPython runs; `token_bytes` makes sure
LENGTH_BYTES = 8


def token_bytes(tokens: Sequence[int]) -> bytes:
    """4 bytes per token, little endian. Raises `TypeError` or `OverflowError` for what is none."""
    words = array(WORD, tokens)
    assert words.itemsize == TOKEN_BYTES, f"{words.itemsize} bytes per token"
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def block_keys(
    tokens: Sequence[int], block_size: int, *, start: int = 0, parent: bytes = b""
) -> bytes:
    """The keys of the full blocks of a sequence from its block `start` on, 16 bytes each.

    tokens: of the whole sequence, from its beginning. parent: the key of the block before
    `start`; b"" for the first block. Raises what `token_bytes` raises. Takes 1 us per block of 16.
    """
    data = token_bytes(tokens[start * block_size :] if start else tokens)
    width = block_size * TOKEN_BYTES
    key, keys = parent, []
    for end in range(width, len(data) + 1, width):
        key = blake2b(key + data[end - width : end], digest_size=KEY_BYTES).digest()
        keys.append(key)
    return b"".join(keys)


def space_of(parts: Mapping[str, bytes]) -> bytes:
    """The 16 bytes of the space of whoever has these parts. Equal spaces mean equal parts.

    parts: what kind of part -> its value; a plugin's under the plugin's name.
    """
    hashed = blake2b(digest_size=KEY_BYTES)
    for tag in sorted(parts):
        for value in (tag.encode(), parts[tag]):
            hashed.update(len(value).to_bytes(LENGTH_BYTES, "little"))
            hashed.update(value)
    return hashed.digest()
