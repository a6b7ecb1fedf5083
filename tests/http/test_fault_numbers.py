"""Numbers that are none, in every field that takes one, and numbers that nobody gave."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.server.http.body import Body
from jackfield.server.http.chat_request import ChatRequest
from jackfield.server.http.completion_request import CompletionRequest

TALK = [{"role": "user", "content": "hi"}]
ASK = {"prompt": "the cat", "messages": TALK}
JSON = {"content-type": "application/json"}
KINDS: dict[str, type[Body]] = {
    "/v1/completions": CompletionRequest, "/v1/chat/completions": ChatRequest,
}  # fmt: skip
CONSTANTS = ("NaN", "Infinity", "-Infinity")
WRONG = (*CONSTANTS, "1e400", "-1e400", '"nan"', '"1"', "true", "false", "[]", "[1]", "{}")


def fields(*types: type) -> list[tuple[str, str]]:
    """Routes and fields that take such a number, and no truth value."""
    return [
        (path, name)
        for path, kind in KINDS.items()
        for name, field in kind.model_fields.items()
        if field.annotation in [one | None for one in types]
    ]


@pytest.fixture(scope="module", autouse=True)
def beside(site: Any) -> Iterator[None]:
    with site.accompanied():
        yield


def check(site: Any, path: str, field: str, value: str, param: str) -> None:
    text = f'{json.dumps(ASK)[:-1]},"{field}":{value}}}'
    found = site.http.post(path, content=text, headers=JSON)
    site.refusal(found, None if any(one in value for one in CONSTANTS) else param)


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize(("path", "field"), fields(float, int))
def test_no_number(site: Any, path: str, field: str, value: str) -> None:
    check(site, path, field, value, field)


def test_the_fields_are_all_of_them() -> None:
    names = {name for _, name in fields(float, int)}
    assert {
        "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
        "repetition_penalty", "top_k", "n", "seed", "max_tokens", "min_tokens", "priority",
    } <= names  # fmt: skip


@pytest.mark.parametrize("value", ["1.5", "1e308", "9" * 4000, "-" + "9" * 4000])
@pytest.mark.parametrize(("path", "field"), fields(int))
def test_numbers_that_are_no_small_integers(site: Any, path: str, field: str, value: str) -> None:
    check(site, path, field, value, field)


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e400", "-1e400", "1e30", '"1"', "true", "null"]
)
@pytest.mark.parametrize("path", KINDS)
def test_no_bias(site: Any, path: str, value: str) -> None:
    param = "logit_bias" if value in ("1e30",) else "logit_bias.5"
    check(site, path, "logit_bias", f'{{"5":{value}}}', param)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {"top_k": 1, "temperature": 1}, {"allowed_token_ids": [70]}, {"logit_bias": {"70": 100}},
        {"logit_bias": {"70": -100}}, {"top_p": 1e-9}, {"temperature": 0},
    ],
)  # fmt: skip
def test_log_probabilities_are_always_numbers(site: Any, change: Any, stream: bool) -> None:
    more = {**change, "stream": stream, "max_tokens": 6}
    echoed = {"prompt": "the cat", "echo": True, "logprobs": 20}
    told = {"messages": TALK, "logprobs": True, "top_logprobs": 20}
    for path, body in (("/v1/completions", echoed), ("/v1/chat/completions", told)):
        found = site.post(path, **body, **more)
        assert found.status_code == 200
        lines = [line.removeprefix("data: ") for line in found.text.split("\n\n")]
        documents = [line for line in lines if line and line != "[DONE]"]
        values = [value for one in documents for value in scores(strict(one))]
        assert len(values) >= 6 * 2
        assert all(-9999 <= value <= 0 for value in values)


def strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def scores(found: Any) -> Iterator[float]:
    """All log-probabilities, wherever they are."""
    if isinstance(found, list):
        for one in found:
            yield from scores(one)
    elif isinstance(found, dict):
        for name, value in found.items():
            if name == "logprob":
                yield value
            elif name == "token_logprobs":
                yield from (one for one in value if one is not None)
            elif name == "top_logprobs" and value and isinstance(value[-1], dict):
                yield from (one for entry in value for one in (entry or {}).values()
                            if isinstance(one, float))  # fmt: skip
            else:
                yield from scores(value)


OF_THE_FILE = {"temperature": 0.1, "top_k": 1, "repetition_penalty": 1.05}
OF_THE_SERVER = {"sampling.temperature": 0.4, "sampling.frequency_penalty": 0.5}
EFFECTIVE = {**OF_THE_FILE, "temperature": 0.4, "frequency_penalty": 0.5}


@pytest.fixture(scope="module")
def preset(tmp_path_factory: pytest.TempPathFactory, serve: Any) -> Iterator[Any]:
    folder: Path = write_tiny_model(tmp_path_factory.mktemp("preset"), **OF_THE_FILE)
    with serve(folder, **OF_THE_SERVER) as site:
        yield site


@pytest.mark.parametrize(
    "own",
    [{}, {"temperature": 0.7}, {"temperature": 0, "top_k": 3, "repetition_penalty": 1.0},
     {"frequency_penalty": 0.0, "top_p": 0.5}],
)  # fmt: skip
@pytest.mark.parametrize("path", KINDS)
def test_request_over_server_over_file(
    preset: Any, monkeypatch: pytest.MonkeyPatch, path: str, own: dict[str, Any]
) -> None:
    seen: list[Any] = []
    follow = preset.llm.follow

    def noted(prompt: Any, params: Any, **more: Any) -> Any:
        seen.append(params)
        return follow(prompt, params, **more)

    monkeypatch.setattr(preset.llm, "follow", noted)
    assert preset.post(path, **ASK, max_tokens=2, **own).status_code == 200
    [params] = seen
    assert {name: getattr(params, name) for name in EFFECTIVE | own} == EFFECTIVE | own
