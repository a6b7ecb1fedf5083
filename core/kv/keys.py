"""Keys of blocks: a chain of hashes over tokens, made wherever there is time for it."""

import sys
from array import array
from bisect import bisect_left
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
    return keys_of(data, block_size, parent=parent)


def keys_of(data: bytes, block_size: int, *, start: int = 0, parent: bytes = b"") -> bytes:
    """The same of what `token_bytes` made, from its block `start` on."""
    width = block_size * TOKEN_BYTES
    key, keys = parent, []
    for end in range((start + 1) * width, len(data) + 1, width):
        key = blake2b(key + data[end - width : end], digest_size=KEY_BYTES).digest()
        keys.append(key)
    return b"".join(keys)


def common_blocks(one: bytes, other: bytes, width: int, guess: int = 0) -> int:
    """How many blocks of `width` bytes both begin with. guess: what it may be; else it is found by
    halving."""

    def differ(count: int) -> bool:
        return one[: count * width] != other[: count * width]

    most = min(len(one), len(other)) // width
    if 0 < guess < most and differ(guess + 1) and not differ(guess):
        return guess
    return most if not differ(most) else bisect_left(range(most), True, key=differ) - 1


def common_keys(one: bytes, other: bytes) -> int:
    """How many blocks two sequences begin with whose keys are equal. A key stands for all blocks
    up to its own, so that one by one is compared."""

    def differ(index: int) -> bool:
        place = slice(index * KEY_BYTES, (index + 1) * KEY_BYTES)
        return one[place] != other[place]

    return bisect_left(range(min(len(one), len(other)) // KEY_BYTES), True, key=differ)


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
