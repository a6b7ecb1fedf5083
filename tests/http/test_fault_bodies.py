"""Bodies that are no sane JSON: bytes, halves of characters, names twice, depth, and much of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield.server.http.settings import HttpSettings

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
BOTH = (COMPLETE, CHAT)
JSON = {"content-type": "application/json"}
TALK = [{"role": "user", "content": "hi"}]
ASK = json.dumps({"prompt": "the cat", "messages": TALK, "max_tokens": 2})[:-1]
HALF = r"\ud83d"


@pytest.fixture(scope="module", autouse=True)
def beside(site: Any) -> Iterator[None]:
    with site.accompanied():
        yield


def sent(site: Any, path: str, body: str | bytes) -> Any:
    return site.http.post(path, content=body, headers=JSON)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"\xff"}', b'{"prompt":"\xed\xa0\x80"}', b'{"prompt":"\xc0\xaf"}',
        b"\x80\x04\x95", '{"prompt":"x"}'.encode("utf-16"), '{"prompt":"x"}'.encode("utf-32"),
        b'{"prompt":"a\nb"}', b'{"prompt":"x"} x', b"{'prompt':'x'}", b'{"prompt":"x",}',
        b'{"prompt":"\\x"}', b"[" * 5000 + b"]" * 5000, b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)  # fmt: skip
def test_no_json(site: Any, path: str, body: bytes) -> None:
    site.refusal(sent(site, path, body), None)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("stream", ["false", "true"])
@pytest.mark.parametrize(
    ("field", "param"),
    [
        (f'"user":"{HALF}"', "user"), (f'"stop":"{HALF}"', "stop"), (f'"stop":["{HALF}"]', "stop"),
        (f'"bad_words":["a","{HALF}"]', "bad_words"), (f'"model":"{HALF}"', "model"),
        (f'"request_id":"{HALF}"', "request_id"), (f'"none":{{"{HALF}":1}}', "none"),
        (f'"metadata":{{"a":[{{"b":"{HALF}"}}]}}', "metadata"), (f'"{HALF}":1', HALF),
        (f'"chat_template_kwargs":{{"a":"{HALF}"}}', "chat_template_kwargs"),
        (f'"prompt":"x{HALF}"', "prompt"), (f'"user":"{HALF}{HALF}"', "user"),
        (r'"messages":[{"role":"user","content":"\uDC00"}]', "messages"),
    ],
)  # fmt: skip
def test_half_a_character(site: Any, path: str, field: str, param: str, stream: str) -> None:
    found = sent(site, path, f'{ASK},"stream":{stream},{field}}}')
    assert "lone surrogate" in site.refusal(found, param)


@pytest.mark.parametrize("path", BOTH)
def test_both_halves_are_one(site: Any, path: str) -> None:
    talk = [{"role": "user", "content": "\U0001f600"}]
    escaped = json.dumps({"prompt": "\U0001f600", "messages": talk})
    assert HALF in escaped
    for field in ('"user":"\\ud83d\\ude00"', '"stop":["\\ud83d\\ude00"]'):
        assert sent(site, path, f"{escaped[:-1]},{field}}}").status_code == 200


def test_a_mark_of_the_order_of_bytes_is_let_pass(site: Any) -> None:
    assert sent(site, COMPLETE, b'\xef\xbb\xbf{"prompt":"x","max_tokens":1}').status_code == 200


def test_the_last_of_two_values_counts(site: Any) -> None:
    site.refusal(sent(site, COMPLETE, '{"prompt":"x","n":1,"n":10000000}'), "n")
    assert sent(site, COMPLETE, '{"prompt":[300],"prompt":"x","max_tokens":1}').status_code == 200


@pytest.mark.parametrize("pair", ["[]", "{}"])
@pytest.mark.parametrize("depth", [20, 300, 900])
@pytest.mark.parametrize(
    "field",
    ["prompt", "n", "stop", "logit_bias", "stream_options", "metadata", "tools", "tool_choice",
     "response_format", "chat_template_kwargs", "messages", "none"],
)  # fmt: skip
def test_deep_values(site: Any, field: str, depth: int, pair: str) -> None:
    opening = pair[0] if pair == "[]" else '{"a":'
    value = opening * depth + "1" + pair[1] * depth
    for path in BOTH:
        found = sent(site, path, f'{ASK},"{field}":{value}}}')
        if found.status_code != 200:
            site.refusal(found, found.json()["error"]["param"])


@pytest.mark.parametrize("depth", [20, 300, 900])
@pytest.mark.parametrize(
    "message",
    ['{"role":%s}', '{"role":"user","content":%s}', '{"role":"user","content":[%s]}',
     '{"role":"user","content":[{"type":%s}]}', '{"role":"user","content":"a","more":%s}'],
)  # fmt: skip
def test_deep_messages(site: Any, message: str, depth: int) -> None:
    found = sent(site, CHAT, f'{ASK},"messages":[{message % ("[" * depth + "]" * depth)}]}}')
    if found.status_code != 200:
        assert site.refusal(found, found.json()["error"]["param"])


def test_very_many_values(site: Any) -> None:
    site.refusal(site.post(COMPLETE, prompt=["x"] * 200_000), "prompt")
    site.refusal(site.post(COMPLETE, prompt=[5] * 200_000), "prompt")
    site.refusal(site.post(COMPLETE, prompt=[[5]] * 200_000), "prompt")
    site.refusal(site.post(COMPLETE, prompt="x", stop=["x"] * 200_000), "stop")
    site.refusal(site.post(COMPLETE, prompt="x", n=10_000_000), "n")
    talk = [{"role": "wizard", "content": "x"}] * 50_000
    site.refusal(site.post(CHAT, messages=talk), "messages[0].role")
    many = {f"field{place}": 1 for place in range(50_000)}
    found = site.post(COMPLETE, prompt="x", max_tokens=1, **many)
    assert found.status_code == 200
    assert len(found.headers["x-jackfield-ignored-fields"]) < 1000


def test_names_of_a_megabyte_are_not_repeated(site: Any, folder: Path, serve: Any) -> None:
    name = "x" * 1_000_000
    site.refusal(site.post(COMPLETE, prompt="x", logit_bias={name: None}), f"logit_bias.{'x' * 53}")
    site.refusal(site.post(COMPLETE, prompt="x", logit_bias={name: 1}), "logit_bias")
    site.refusal(site.post(COMPLETE, prompt="x", model=name), "model", 404)
    site.refusal(site.post(COMPLETE, prompt="x", request_id=name), "request_id")
    talk = [{"role": name, "content": "x"}]
    site.refusal(site.post(CHAT, messages=talk), "messages[0].role")
    site.refusal(site.post(CHAT, messages=TALK, response_format={"type": name}), "response_format")
    site.refusal(site.post(CHAT, messages=TALK, chat_template_kwargs={"self": name}),
                 "chat_template_kwargs")  # fmt: skip
    found = sent(site, COMPLETE, f'{{"prompt":"x","{name}{HALF}":1}}')
    site.refusal(found, "x" * 64)
    with serve(folder, HttpSettings(strict=True)) as strict:
        strict.refusal(strict.post(COMPLETE, prompt="x", **{name: 1}), "x" * 64)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", [*BOTH, "/tokenize"])
def test_wrong_methods(site: Any, path: str, method: str) -> None:
    found = site.http.request(method, path)
    site.refusal(found, None, 405)
    assert found.headers["allow"] == "POST"
