"""One answer's text with its stop strings, and how many tokens it has."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from jackfield.core.text.byte_level import token_bytes
from jackfield.core.text.output import TextDelta, TextStream
from jackfield.core.text.tokenizer import Tokenizer

WORDS = ["a", "b", "Ċ", "ĊĊ", ".Ċ", "AB", "CD", "EF", "G", "ð", "Ł", "ĳ", "į"]
A, B, NEWLINE, NEWLINES, DOT, AB, CD, EF, G, *EMOJI = range(len(WORDS))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    backend = Backend(models.WordLevel({word: index for index, word in enumerate(WORDS)}, "a"))
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


def test_without_stop_strings_all_tokens_count(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer)
    assert b"".join(token_bytes(WORDS[index]) for index in EMOJI) == "👍".encode()
    assert stream.push([A, *EMOJI[:2]]) == TextDelta("a", 3, None)
    assert stream.push(EMOJI[2:]) == TextDelta("👍", 2, None)
    assert stream.push([EMOJI[0]]) == TextDelta("", 1, None)
    assert stream.finish() == TextDelta("\ufffd", 0, None)


@pytest.mark.parametrize(
    "ids", [[A, NEWLINES], [A, NEWLINE, NEWLINE], [A, DOT, NEWLINE]], ids=["one", "two", "dot"]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_every_spelling_of_a_stop_string_stops(
    tokenizer: Tokenizer, ids: list[int], at_once: bool
) -> None:
    stream = TextStream(tokenizer, stops=["\n\n"])
    pieces = [[*ids, B, B]] if at_once else [[index] for index in [*ids, B, B]]
    found = [stream.push(piece) for piece in pieces]
    assert "".join(delta.text for delta in found) == ("a." if DOT in ids else "a")
    assert sum(delta.num_tokens for delta in found) == len(ids)
    assert found[-1].stop == stream.finish().stop == "\n\n"


def test_first_pieces_of_a_stop_string_never_show(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, stops=["CDEF"])
    assert stream.push([AB, CD]) == TextDelta("AB", 2, None)
    assert stream.push([EF, G]) == TextDelta("", 1, "CDEF")
    assert stream.push([G]) == TextDelta("", 0, "CDEF")
    assert stream.finish() == TextDelta("", 0, "CDEF")


def test_stop_string_inside_a_token_counts_that_token(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, stops=["D"], include_stop=True)
    assert stream.push([AB, CD, EF]) == TextDelta("ABCD", 2, "D")


def test_held_text_comes_at_the_end(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, stops=["CDEF"])
    assert stream.push([AB, CD]) == TextDelta("AB", 2, None)
    assert stream.finish() == TextDelta("CD", 0, None)


def test_stop_string_in_the_last_flush(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, stops=["\ufffd"])
    assert stream.push([A, EMOJI[0]]) == TextDelta("a", 2, None)
    assert stream.finish() == TextDelta("", 0, "\ufffd")


def test_stop_strings_wait_for_the_first_tokens(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, stops=["b"], min_tokens=2)
    assert stream.push([B, B, A, B, A]) == TextDelta("bba", 4, "b")
    stream = TextStream(tokenizer, stops=["\n\n"], min_tokens=2)
    assert stream.push([A, NEWLINE, NEWLINE, A]) == TextDelta("a\n\na", 4, None)
    assert stream.finish().stop is None


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 12), max_size=20), cuts=st.sets(st.integers(1, 19)))
def test_any_split_gives_the_same(tokenizer: Tokenizer, ids: list[int], cuts: set[int]) -> None:
    def run(pieces: list[list[int]]) -> tuple[str, int, str | None]:
        stream = TextStream(tokenizer, stops=["b\n", "CDE"], min_tokens=3)
        found = [stream.push(piece) for piece in pieces] + [stream.finish()]
        return "".join(d.text for d in found), sum(d.num_tokens for d in found), found[-1].stop

    edges = [0, *sorted(cut for cut in cuts if cut < len(ids)), len(ids)]
    pieces = [ids[start:end] for start, end in pairwise(edges)]
    assert run(pieces) == run([[index] for index in ids])
