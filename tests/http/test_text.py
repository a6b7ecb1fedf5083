"""What a scripted model says arrives whole: characters of several tokens, stops, failures."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

SMILE = "\U0001f600".encode()
HAN = "\u6f22".encode()
SCRIPT: dict[str, list[Any]] = {
    "e": ["a", SMILE[:2], SMILE[2:], *[SMILE[i : i + 1] for i in range(4)], HAN[:1], HAN[1:], "z"],
    "c": ["e", "\u0301", "x", "\U0001f468", "\u200d", "\U0001f469"],
    "s": ["AB", "CD", "EF", "G"],
    "t": ["a", ".\n", "\n", "b"],
    "u": ["a", "\n\n", "b"],
}
TEMPLATE = "{{ messages[0].content }}"


@pytest.fixture(scope="module")
def told(scripted: Any, serve: Any) -> Iterator[Any]:
    with serve(scripted(SCRIPT, template=TEMPLATE)) as site:
        yield site


def streamed(text: str) -> list[Any]:
    """The choices of a stream's chunks."""
    lines = text.split("\n\n")
    return [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]


def both(site: Any, first: str, **more: Any) -> list[tuple[str, str]]:
    """Text and end of an answer on both routes, whole and streamed."""
    found = []
    for path, ask in (
        ("/v1/completions", {"prompt": first}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": first}]}),
    ):
        body = {**ask, "temperature": 0, "max_tokens": 30, **more}
        choice = site.post(path, **body).json()["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        found.append((text, choice["finish_reason"]))
        chunks = streamed(site.post(path, stream=True, **body).text)
        pieces = [c["text"] if "text" in c else c["delta"].get("content", "") for c in chunks]
        assert not any("\ufffd" in piece for piece in pieces)
        found.append(("".join(pieces), chunks[-1]["finish_reason"]))
    return found


def test_characters_of_several_tokens(told: Any) -> None:
    assert both(told, "e") == [("a\U0001f600\U0001f600\u6f22z", "stop")] * 4


def test_marks_that_join(told: Any) -> None:
    assert both(told, "c") == [("e\u0301x\U0001f468\u200d\U0001f469", "stop")] * 4


@pytest.mark.parametrize(
    ("first", "stop", "text"), [("s", "CDEF", "AB"), ("t", "\n\n", "a."), ("u", "\n\n", "a")]
)
def test_a_stop_text_of_several_tokens_does_not_leak(
    told: Any, first: str, stop: str, text: str
) -> None:
    assert both(told, first, stop=[stop]) == [(text, "stop")] * 4


def test_a_stream_of_logprobs_joins_to_its_text(told: Any) -> None:
    for first, stop in (("e", None), ("s", "CDEF"), ("s", "F")):
        body = {"prompt": first, "logprobs": 1, "stop": stop, "max_tokens": 30, "stream": True}
        choices = streamed(told.post("/v1/completions", **body).text)
        shown = ""
        for choice in choices:
            shown += choice["text"]
            for token, offset in zip(
                choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], strict=True
            ):
                assert shown.startswith(token, offset)
        tokens = [token for choice in choices for token in choice["logprobs"]["tokens"]]
        assert "".join(tokens) == shown


def test_minus_infinity_is_no_json(told: Any) -> None:
    body = {"prompt": "sx", "logprobs": 5, "top_k": 1, "temperature": 1, "echo": True}
    found = told.post("/v1/completions", **body)
    assert found.status_code == 200

    def no_constant(name: str) -> None:
        raise AssertionError(name)

    json.loads(found.text, parse_constant=no_constant)


def test_an_answer_that_fails_under_way(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stream ends with an error event and [DONE]."""
    engine = told.llm.assembly.engine
    with told.http.stream(
        "POST", "/v1/completions",
        json={"prompt": "s", "ignore_eos": True, "max_tokens": 400, "stream": True,
              "request_id": "lost"},
    ) as found:  # fmt: skip
        lines = found.iter_lines()
        next(lines)
        told.until(lambda: engine.has_work)
        engine_abort(told, "lost")
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    error = json.loads(rest[-2][6:])["error"]
    assert (error["type"], error["code"]) == ("server_error", "answer_failed")
    assert "aborted" in error["message"]


def engine_abort(site: Any, name: str) -> None:
    site.llm._thread.abort(name)


def test_a_template_that_refuses(scripted: Any, serve: Any) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    with serve(scripted(SCRIPT, template=template)) as site:
        talk = [{"role": "user", "content": "x"}]
        found = site.post("/v1/chat/completions", messages=talk)
        assert found.status_code == 400
        assert "roles must alternate" in found.json()["error"]["message"]
    with serve(scripted(SCRIPT, begin=True)) as site:
        found = site.post("/v1/chat/completions", messages=talk)
        assert found.status_code == 400
        assert "no chat template" in found.json()["error"]["message"]
        assert site.post("/v1/completions", prompt="").status_code == 200
