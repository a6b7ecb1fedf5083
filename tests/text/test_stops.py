"""Stop strings, against a model that reads the whole text character by character."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jackfield.core.api.errors import RequestError
from jackfield.core.text.stops import StopStrings


def run(pieces: list[str], stops: list[str], include: bool = False) -> tuple[str, str | None]:
    strings = StopStrings(stops, include=include)
    text = "".join(map(strings.push, pieces)) + strings.finish()
    return text, strings.hit


def naive(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@given(
    pieces=st.lists(st.text("abc", max_size=4), max_size=12),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), max_size=4),
    include=st.booleans(),
)
@example(pieces=["a", "a", "b"], stops=["ab", "aab"], include=False)
@example(pieces=["aba", "bac"], stops=["abac"], include=True)
def test_any_split_gives_what_the_whole_text_gives(
    pieces: list[str], stops: list[str], include: bool
) -> None:
    assert run(pieces, stops, include) == naive("".join(pieces), stops, include)


@given(
    text=st.text("ab\n", max_size=20),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_only_the_beginning_of_a_stop_string_is_held(text: str, stops: list[str]) -> None:
    strings = StopStrings(stops)
    shown = strings.push(text)
    if strings.hit is None:
        held = text[len(shown) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)
        longer = [text[start:] for start in range(len(shown))]
        assert not any(stop.startswith(tail) for stop in stops for tail in longer)


def test_first_pieces_of_a_stop_string_never_show() -> None:
    strings = StopStrings(["CDEF"])
    assert [strings.push(piece) for piece in ["AB", "CD", "EF", "G"]] == ["AB", "", "", ""]
    assert strings.hit == "CDEF"
    assert strings.finish() == ""


def test_held_text_comes_when_it_is_no_stop_string() -> None:
    strings = StopStrings(["CDEF"])
    assert [strings.push(piece) for piece in ["ABC", "D", "X", "C"]] == ["AB", "", "CDX", ""]
    assert strings.finish() == "C"
    assert strings.hit is None


@pytest.mark.parametrize(("include", "text"), [(False, "a"), (True, "a\n\n")])
def test_stop_string_may_stay(include: bool, text: str) -> None:
    assert run(["a\n", "\nb"], ["\n\n"], include) == (text, "\n\n")


def test_no_stop_strings_hold_nothing() -> None:
    strings = StopStrings([])
    assert strings.push("abc") == "abc"


def test_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="must not be empty") as caught:
        StopStrings(["a", ""])
    assert caught.value.param == "stop"
