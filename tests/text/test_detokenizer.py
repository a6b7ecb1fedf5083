"""Deltas of text: never half a character, and all together what a full decode gives."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from jackfield.core.text.byte_level import BYTE_OF
from jackfield.core.text.detokenizer import Detokenizer
from jackfield.core.text.tokenizer import Tokenizer

CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}
FAMILIES = ["👍", "日", "e\u0301x", "🇫🇷", "👍🏽", "👩\u200d👩\u200d👧", "naïve", "\ufe0f", "\ufffd"]


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """One token for each byte."""
    if not tokenizer.byte_level:
        return [3 + byte for byte in data]
    ids = [tokenizer._backend.token_to_id(CHARACTER_OF[byte]) for byte in data]
    return [index for index in ids if index is not None]


def deltas(tokenizer: Tokenizer, pieces: Iterable[list[int]], **options: object) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)  # type: ignore[arg-type]
    return [*map(detokenizer.push, pieces), detokenizer.finish()]


def split(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    return [ids[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("kind", ["byte_level", "word_like"])
@pytest.mark.parametrize("text", FAMILIES)
@pytest.mark.parametrize("width", [1, 2, 3])
def test_characters_in_pieces(
    request: pytest.FixtureRequest, kind: str, text: str, width: int
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    ids = byte_ids(tokenizer, text.encode())
    pieces = [ids[start : start + width] for start in range(0, len(ids), width)]
    shown = deltas(tokenizer, pieces)
    assert "".join(shown) == text
    assert text == "\ufffd" or not any("\ufffd" in delta for delta in shown)


def test_byte_level_character_appears_with_its_last_byte(byte_level: Tokenizer) -> None:
    first, *rest = byte_ids(byte_level, "👍日".encode())
    pieces = [[first], rest[:1], rest[1:3], rest[3:4], rest[4:], []]
    assert deltas(byte_level, pieces) == ["", "", "👍", "", "日", "", ""]


def test_combining_marks_add_to_what_was_shown(byte_level: Tokenizer) -> None:
    pieces = [byte_ids(byte_level, scalar.encode()) for scalar in "e\u0301x👩\u200d👧"]
    assert deltas(byte_level, pieces) == ["e", "\u0301", "x", "👩", "\u200d", "👧", ""]


@pytest.mark.parametrize("kind", ["byte_level", "word_like"])
def test_invalid_bytes_in_the_middle(request: pytest.FixtureRequest, kind: str) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    letters = tokenizer.encode("hello", add_special_tokens=False)
    ids = [*letters, *byte_ids(tokenizer, b"\xf0\x9f"), *letters, *byte_ids(tokenizer, b"\xe6")]
    shown = deltas(tokenizer, [[index] for index in ids])
    assert "".join(shown) == tokenizer.decode(ids)
    assert "\ufffd" in "".join(shown[:-1])
    assert shown[-1] == "\ufffd"


@pytest.mark.parametrize("kind", ["byte_level", "word_like"])
def test_special_tokens_in_the_middle(request: pytest.FixtureRequest, kind: str) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    head, tail = byte_ids(tokenizer, "日".encode())[:1], byte_ids(tokenizer, "日".encode())[1:]
    ids = [*tokenizer.encode("hello"), *head, 2, *tail, 1, *tokenizer.encode(" wor")]
    for skip in (True, False):
        shown = deltas(tokenizer, [[index] for index in ids], skip_special_tokens=skip)
        assert "".join(shown) == tokenizer.decode(ids, skip_special_tokens=skip)
    assert "日" in tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["byte_level", "word_like"])
@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=24), cuts=st.lists(st.integers(0, 99), max_size=8))
def test_any_bytes_split_in_any_way(
    request: pytest.FixtureRequest, kind: str, data: bytes, cuts: list[int]
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    ids = byte_ids(tokenizer, data)
    assert len(ids) == len(data)
    assert "".join(deltas(tokenizer, split(ids, cuts))) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["byte_level", "word_like"])
@settings(max_examples=200, deadline=None)
@given(
    ids=st.lists(st.integers(0, 330), max_size=30),
    cuts=st.lists(st.integers(0, 99), max_size=8),
    skip=st.booleans(),
)
def test_any_ids_split_in_any_way(
    request: pytest.FixtureRequest, kind: str, ids: list[int], cuts: list[int], skip: bool
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    shown = deltas(tokenizer, split(ids, cuts), skip_special_tokens=skip)
    assert "".join(shown) == tokenizer.decode(ids, skip_special_tokens=skip)


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=20), cuts=st.lists(st.integers(0, 99), max_size=8))
def test_valid_text_never_shows_a_replacement(
    byte_level: Tokenizer, text: str, cuts: list[int]
) -> None:
    ids = byte_ids(byte_level, text.encode())
    shown = "".join(deltas(byte_level, split(ids, cuts))[:-1])
    assert shown == text


@settings(max_examples=150, deadline=None)
@given(
    prompt=st.lists(st.integers(259, 281), max_size=8),
    answer=st.lists(st.integers(1, 281), max_size=12),
)
def test_answer_is_what_comes_after_the_prompt(
    word_like: Tokenizer, prompt: list[int], answer: list[int]
) -> None:
    shown = deltas(word_like, [[index] for index in answer], prompt_ids=prompt)
    assert word_like.decode(prompt) + "".join(shown) == word_like.decode(prompt + answer)


def test_first_space_of_the_answer(word_like: Tokenizer, byte_level: Tokenizer) -> None:
    hello = word_like.encode("hello")
    assert deltas(word_like, [hello]) == ["hello", ""]
    assert deltas(word_like, [hello], prompt_ids=[1, 2]) == ["hello", ""]
    assert deltas(word_like, [hello], prompt_ids=[1, *hello, 2]) == [" hello", ""]
    assert deltas(word_like, [hello], prompt_ids=[*hello, 3 + 0xE2]) == [" hello", ""]
    ids = byte_level.encode(" the")
    assert deltas(byte_level, [ids], prompt_ids=ids) == [" the", ""]


@pytest.mark.parametrize(
    "decoder", [None, decoders.Metaspace(), decoders.WordPiece(), decoders.BPEDecoder()]
)
@settings(max_examples=50, deadline=None)
@given(ids=st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_other_decoders(decoder: decoders.Decoder | None, ids: list[int]) -> None:
    words = ["▁a", "b", "##c", "d</w>", "�", "."]
    backend = Backend(models.WordLevel({word: index for index, word in enumerate(words)}, "b"))
    if decoder is not None:
        backend.decoder = decoder
    tokenizer = Tokenizer(backend)
    shown = deltas(tokenizer, [[index] for index in ids])
    assert "".join(shown) == tokenizer.decode(ids)


def test_byte_level_with_further_steps(byte_level_backend: Callable[[], Backend]) -> None:
    backend = byte_level_backend()
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    tokenizer = Tokenizer(backend)
    ids = [backend.token_to_id(CHARACTER_OF[byte]) or 0 for byte in " the 👍日 x".encode()]
    shown = deltas(tokenizer, [[index] for index in ids])
    assert "".join(shown) == tokenizer.decode(ids) == "the 👍日 x"
    assert "\ufffd" not in "".join(shown)


def test_long_run_of_bytes_is_looked_at_once(
    word_like: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    token = Tokenizer.token

    def counted(self: Tokenizer, index: int) -> str | None:
        nonlocal looked
        looked += 1
        return token(self, index)

    monkeypatch.setattr(Tokenizer, "token", counted)
    ids = byte_ids(word_like, "日".encode() * 100)
    assert deltas(word_like, [[index] for index in ids])[-1] == "日" * 100
    assert looked == len(ids)


def test_work_does_not_grow_with_the_answer(
    word_like: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = 0
    decode = Tokenizer.decode

    def measured(self: Tokenizer, ids: list[int], *, skip_special_tokens: bool = True) -> str:
        nonlocal longest
        longest = max(longest, len(ids))
        return decode(self, ids, skip_special_tokens=skip_special_tokens)

    monkeypatch.setattr(Tokenizer, "decode", measured)
    deltas(word_like, [[index] for index in word_like.encode("hello wor.\n" * 100)])
    assert longest <= 6
