"""A stop text ends an answer however it is spelled in tokens, and nothing of it is shown."""

from collections.abc import Iterator
from typing import Any

import pytest

SCRIPT: dict[str, list[str]] = {
    "a": ["AB", "CD", "EF", "G"],
    "b": list("ABCDEFG"),
    "c": ["a", "\n\n", "b"],
    "d": ["a", "\n", "\n", "b"],
    "e": ["a", ".\n", "\n", "b"],
    "q": list("nobody is disturbed"),
}
COMPANION = {"prompt": "q", "ignore_eos": False}


@pytest.fixture(scope="module")
def told(scripted: Any, serve: Any) -> Iterator[Any]:
    with (
        serve(scripted(SCRIPT, template="{{ messages[0].content }}")) as site,
        site.accompanied(**COMPANION),
    ):
        yield site


@pytest.mark.parametrize(
    ("prompt", "stop", "text", "reason"),
    [
        ("a", ["CDEF"], "AB", "CDEF"), ("b", ["CDEF"], "AB", "CDEF"),
        ("b", ["CDEX", "G"], "ABCDEF", "G"), ("a", "D", "ABC", "D"), ("b", "A", "", "A"),
        ("c", ["\n\n"], "a", "\n\n"), ("d", ["\n\n"], "a", "\n\n"), ("e", ["\n\n"], "a.", "\n\n"),
    ],
)  # fmt: skip
def test_every_spelling_stops(
    told: Any, prompt: str, stop: Any, text: str, reason: str
) -> None:
    assert told.everywhere(prompt, stop=stop) == [(text, "stop")] * 4
    found = told.post("/v1/completions", prompt=prompt, stop=stop, temperature=0).json()
    assert found["choices"][0]["stop_reason"] == reason


@pytest.mark.parametrize("prompt", ["a", "b"])
def test_nothing_of_it_is_ever_shown(told: Any, prompt: str) -> None:
    """The pieces come as soon as they cannot be the beginning of it any more."""
    events = told.events("/v1/completions", prompt=prompt, stop=["CDEF"], temperature=0)
    pieces = [event["choices"][0]["text"] for event in events]
    assert not any(set("CDEF") & set(piece) for piece in pieces)


@pytest.mark.parametrize("prompt", ["a", "b"])
def test_the_beginning_of_one_that_does_not_come_is_shown(told: Any, prompt: str) -> None:
    assert told.everywhere(prompt, stop=["GH", "CDX"]) == [("ABCDEFG", "stop")] * 4


@pytest.mark.parametrize("prompt", ["a", "b"])
def test_it_may_be_shown_on_demand(told: Any, prompt: str) -> None:
    shown = told.everywhere(prompt, stop=["CDEF"], include_stop_str_in_output=True)
    assert shown == [("ABCDEF", "stop")] * 4
