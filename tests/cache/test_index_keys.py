"""Keys of blocks are the hashes that they are said to be, and parts of a space never mix."""

import hashlib
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.core.kv.keys import (
    block_keys,
    common_blocks,
    common_keys,
    keys_of,
    space_of,
    token_bytes,
)

TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=40)
PARTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
                        st.binary(max_size=12), max_size=3)  # fmt: skip


def slow_keys(tokens: list[int], block_size: int) -> list[bytes]:
    """The same keys, the long way."""
    keys: list[bytes] = []
    for first in range(0, len(tokens) - block_size + 1, block_size):
        text = keys[-1] if keys else b""
        for token in tokens[first : first + block_size]:
            text += bytes((token >> shift) & 255 for shift in (0, 8, 16, 24))
        keys.append(hashlib.blake2b(text, digest_size=16).digest())
    return keys


@given(TOKENS, st.integers(1, 8))
def test_keys_are_a_chain_of_hashes(tokens: list[int], block_size: int) -> None:
    expected = slow_keys(tokens, block_size)
    assert block_keys(tokens, block_size) == b"".join(expected)
    assert block_keys(tuple(tokens), block_size) == b"".join(expected)
    for start in range(1, len(expected) + 1):
        rest = block_keys(tokens, block_size, start=start, parent=expected[start - 1])
        assert rest == b"".join(expected[start:])


def test_keys_are_the_same_everywhere_and_always() -> None:
    """Two processes compare them, and a store on a disk may."""
    assert block_keys([1, 2, 3, 4, 5], 2).hex() == (
        "2cc5e4d47c5f3c5fbe635a5a5b7bb39266ca1890a7b0edaee5b40586c64fbba2"
    )
    assert space_of({"tenant": b"a"}).hex() == "69671ba4df4b0ec1f76f225358a238b4"
    assert space_of({}) == hashlib.blake2b(digest_size=16).digest()


@given(TOKENS)
def test_tokens_are_four_bytes_each(tokens: list[int]) -> None:
    assert token_bytes(tokens) == b"".join(token.to_bytes(4, "little") for token in tokens)


@pytest.mark.parametrize("token", [-1, 2**32, 1.0, "1", None])
def test_what_is_no_token_has_no_bytes(token: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        token_bytes([1, token])


def test_a_key_tells_what_was_before() -> None:
    whole = block_keys([1, 1, 1, 1], 2)
    assert whole[:16] != whole[16:]
    assert block_keys([2, 1, 1, 1], 2)[16:] != whole[16:]
    assert block_keys([1], 2) == b""


@given(PARTS, PARTS)
def test_equal_spaces_mean_equal_parts(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert (space_of(one) == space_of(other)) is (one == other)
    assert len(space_of(one)) == 16
    assert space_of(dict(reversed(one.items()))) == space_of(one)


def test_parts_that_read_alike_are_told_apart() -> None:
    """An adapter is not a salt of the same name, and no two parts run into one another."""
    given: list[dict[str, bytes]] = [
        {}, {"adapter": b"X"}, {"salt": b"X"}, {"adapter": b"X", "salt": b"X"}, {"salt": b""},
        {"a": b"bc"}, {"ab": b"c"}, {"a": b"b", "c": b""}, {"a": b"", "b": b"c"}, {"": b"abc"},
        {"plugin one": b"X"}, {"plugin two": b"X"},
        {"adapter": b"name" + b"1"}, {"adapter": b"name" + b"2"},
    ]  # fmt: skip
    for one, other in combinations(given, 2):
        assert space_of(one) != space_of(other), (one, other)


def test_parts_cannot_be_written_to_look_like_two() -> None:
    """A value that holds what stands between two parts is still one value."""
    tag, inner = "salt", b"y"
    length = (1).to_bytes(8, "little")
    forged = b"x" + len(b"z").to_bytes(8, "little") + b"z" + length + inner
    assert space_of({tag: forged}) != space_of({tag: b"x", "z": inner})


@given(st.binary(max_size=40), st.binary(max_size=40), st.integers(0, 12), st.integers(0, 12))
def test_common_blocks_whatever_is_guessed(
    one: bytes, other: bytes, shared: int, guess: int
) -> None:
    one, other = other[:shared] + one, other
    expected = 0
    while one[: 4 * expected + 4] == other[: 4 * expected + 4] and 4 * expected + 4 <= min(
        len(one), len(other)
    ):
        expected += 1
    assert common_blocks(one, other, 4, guess) == expected


@given(TOKENS, TOKENS, st.integers(0, 40))
def test_common_keys_are_those_of_common_blocks(
    one: list[int], other: list[int], shared: int
) -> None:
    one = other[:shared] + one
    expected = common_blocks(token_bytes(one), token_bytes(other), 8)
    assert common_keys(block_keys(one, 2), block_keys(other, 2)) == expected


@given(TOKENS, st.integers(1, 8))
def test_keys_of_bytes_are_those_of_their_tokens(tokens: list[int], size: int) -> None:
    whole = block_keys(tokens, size)
    for start in range(len(whole) // 16 + 1):
        parent = whole[16 * start - 16 : 16 * start] if start else b""
        assert keys_of(token_bytes(tokens), size, start=start, parent=parent) == whole[16 * start :]
