"""Whatever is sent: one sentence with the field it is about, and nobody else notices."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

TALK = [{"role": "user", "content": "hi"}]
BOTH = ("/v1/completions", "/v1/chat/completions")
ANYTHING: dict[str, Any] = {"prompt": "the cat", "messages": TALK}


@pytest.fixture(scope="module", autouse=True)
def healthy(site: Any) -> Iterator[None]:
    """Two streams beside all of these tests; they must be what they are alone."""
    body = {"prompt": "one two", "max_tokens": 230, "ignore_eos": True, "temperature": 0}
    alone = site.post("/v1/completions", **body).json()["choices"][0]["text"]
    texts: list[str] = []

    def read() -> None:
        with site.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as found:
            lines = [line[6:] for line in found.iter_lines() if line]
        assert lines.pop() == "[DONE]"
        texts.append("".join(json.loads(line)["choices"][0]["text"] for line in lines))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    yield
    for reader in readers:
        reader.join(20)
    assert texts == [alone, alone]


def refused(found: Any, param: str | None, *, status: int = 400) -> str:
    """The message, after checking that the refusal has the one shape that clients know."""
    assert found.status_code == status, found.text
    error = found.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, error
    assert error["message"] and "\n" not in error["message"] and len(error["message"]) < 400
    assert error["type"] == "invalid_request_error"
    assert found.headers["x-should-retry"] == "false"
    assert found.headers["x-request-id"]
    return str(error["message"])


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    "body",
    [b"{", b"", b"\xff\xfe", b"[" * 100_000, b'{"n":' + b"9" * 5000 + b"}", b"[1]", b'""', b"null"],
    ids=["cut", "empty", "bytes", "deep", "digits", "list", "text", "null"],
)
def test_no_json_object(site: Any, path: str, body: bytes) -> None:
    found = site.http.post(path, content=body, headers={"content-type": "application/json"})
    refused(found, None)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", '"nan"', "true", "{}"])
@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty"]
)
def test_no_number(site: Any, path: str, field: str, value: str) -> None:
    text = json.dumps(ANYTHING)[:-1] + f',"{field}":{value}}}'
    head = {"content-type": "application/json"}
    constant = value in ("NaN", "Infinity", "-Infinity")
    refused(site.http.post(path, content=text, headers=head), None if constant else field)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"n": 10_000_000}, "n"), ({"n": 0}, "n"), ({"n": "2"}, "n"), ({"n": 5000}, "n"),
    ({"max_tokens": -1}, "max_tokens"), ({"max_tokens": True}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"), ({"top_k": "x"}, "top_k"), ({"seed": 2**70}, "seed"),
    ({"stop": 5}, "stop"), ({"stop": [""]}, "stop"), ({"stop": ["x"] * 300}, "stop"),
    ({"stop_token_ids": [300]}, "stop_token_ids"), ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"logit_bias": {"999999": -100}}, "logit_bias"), ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"abc": 1}}, "logit_bias"), ({"logit_bias": {"5": 1e30}}, "logit_bias"),
    ({"logit_bias": {"5": None}}, "logit_bias.5"), ({"logit_bias": []}, "logit_bias"),
    ({"allowed_token_ids": []}, "allowed_token_ids"), ({"bad_words": [1]}, "bad_words[0]"),
    ({"stream": "yes"}, "stream"), ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": 1}, "stream_options"),
    ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"), ({"user": 1}, "user"),
    ({"priority": 2**40}, "priority"), ({"request_id": ""}, "request_id"),
]  # fmt: skip


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(("change", "param"), WRONG, ids=[str(one[0])[:40] for one in WRONG])
def test_wrong_values(site: Any, path: str, change: dict[str, Any], param: str) -> None:
    refused(site.post(path, **{**ANYTHING, **change}), param)


@pytest.mark.parametrize(
    "prompt",
    ["", [], [""], [[]], [[1], "x"], ["x", 1], [1, 2, 5279552648203111001], [-1], [True], [1.5],
     [300], [[1, 2], [10**400]], None, {}, 5, "x" * 257, [1] * 257, ["x"] * 200_000, "\ud800"],
    ids=lambda value: str(value)[:20].encode("ascii", "replace").decode(),
)
def test_wrong_prompts(site: Any, prompt: Any) -> None:
    body = json.dumps({"prompt": prompt}).encode()
    head = {"content-type": "application/json"}
    refused(site.http.post("/v1/completions", content=body, headers=head), "prompt")


COMPLETION: list[tuple[dict[str, Any], str]] = [
    ({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"), ({"n": 600, "prompt": ["a", "b"]}, "n"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "param"), COMPLETION)
def test_what_completions_do_not_have(site: Any, change: dict[str, Any], param: str) -> None:
    refused(site.post("/v1/completions", **{"prompt": "x", **change}), param)


CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": "x"}, "messages"), ({"messages": ["x"]}, "messages[0]"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ({"top_logprobs": 2}, "top_logprobs"), ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"), ({"functions": [{}]}, "functions"),
    ({"tool_choice": "required"}, "tool_choice"), ({"response_format": {}}, "response_format.type"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "param"), CHAT, ids=[str(one[0])[:40] for one in CHAT])
def test_what_chats_do_not_have(site: Any, change: dict[str, Any], param: str) -> None:
    refused(site.post("/v1/chat/completions", **{"messages": TALK, **change}), param)


def test_a_body_of_fifty_megabytes(site: Any) -> None:
    found = site.post("/v1/completions", prompt="x" * 50_000_000)
    assert "16777216 bytes" in refused(found, None, status=413)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_content_types(site: Any, kind: str) -> None:
    found = site.http.post("/v1/completions", content=b"{}", headers={"content-type": kind})
    refused(found, None, status=415)


def test_paths_and_methods_that_there_are_not(site: Any) -> None:
    refused(site.http.get("/v1/nothing"), None, status=404)
    refused(site.http.post("/v1/embeddings", json={}), None, status=404)
    found = site.http.get("/v1/chat/completions")
    refused(found, None, status=405)
    assert found.headers["allow"] == "POST"
    refused(site.http.get("/v1/models/none"), "model", status=404)
    refused(site.post("/v1/completions", prompt="x", model="none"), "model", status=404)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": TALK}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"), ("/detokenize", {}, "tokens"),
        ("/tokenize", {"messages": [{"role": "king"}]}, "messages[0].role"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [10**30]}, "tokens[0]"),
    ],
)  # fmt: skip
def test_tokenizer_routes(site: Any, path: str, body: dict[str, Any], param: str) -> None:
    refused(site.post(path, **body), param)


def test_a_name_that_is_in_use(slow: Any) -> None:
    body = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "request_id": "twice"}
    with slow.http.stream("POST", "/v1/completions", json={**body, "stream": True}) as found:
        lines = found.iter_lines()
        next(lines)
        refused(slow.post("/v1/completions", **body), "request_id")
        assert next(line for line in lines if line).startswith("data: {")
    slow.settled()
