"""Prompts that are empty, just fit or do not, and more answers than there are seats."""

from collections.abc import Iterator
from typing import Any

import pytest

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
GREEDY = {"temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def small(scripted: Any, serve: Any) -> Iterator[Any]:
    """64 tokens, each a character; a chat is its first message."""
    folder = scripted(
        {"q": list("nobody is disturbed")}, template="{{ messages[0].content }}",
        max_position_embeddings=64,
    )  # fmt: skip
    with serve(folder) as site, site.accompanied(prompt="q", ignore_eos=False):
        yield site


@pytest.mark.parametrize("form", ["text", "chat"])
def test_a_text_that_is_far_too_long_is_not_encoded(
    small: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = type(small.llm.tokenizer).encode

    def short_only(tokenizer: Any, text: str, **options: Any) -> Any:
        assert len(text) < 1000, "it was encoded"
        return encode(tokenizer, text, **options)

    monkeypatch.setattr(type(small.llm.tokenizer), "encode", short_only)
    talk = [{"role": "user", "content": "x" * 300_000}]
    body = {"prompt": "x" * 300_000} if form == "text" else {"messages": talk}
    found = small.post(COMPLETE if form == "text" else CHAT, **body)
    error = found.json()["error"]
    assert (found.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == ("prompt" if form == "text" else "messages")
    assert "64 tokens" in error["message"] and "at least 42858" in error["message"]


@pytest.fixture(scope="module")
def begun(scripted: Any, serve: Any) -> Iterator[Any]:
    """Its tokenizer puts a token before every text."""
    with serve(scripted({"<begin>": ["hello"]}, begin=True)) as site:
        yield site


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", [0, 1, None])
@pytest.mark.parametrize("length", [63, 64, 65, 10_000])
@pytest.mark.parametrize("form", ["text", "ids", "chat"])
def test_around_the_context(
    small: Any, form: str, length: int, limit: int | None, stream: bool
) -> None:
    path, param = (CHAT, "messages") if form == "chat" else (COMPLETE, "prompt")
    talk = [{"role": "user", "content": "x" * length}]
    ask = {"text": {"prompt": "x" * length}, "ids": {"prompt": [70] * length},
           "chat": {"messages": talk}}[form]  # fmt: skip
    body = {**ask, **GREEDY, "max_tokens": limit, "stream": stream}
    found = small.post(path, **body)
    if form == "chat" and limit == 0:
        small.refusal(found, "max_tokens")
    elif length > 64 or (length == 64 and limit != 0):
        message = small.refusal(found, param)
        assert found.json()["error"]["code"] == "context_length_exceeded"
        assert "64 tokens" in message and str(length) in message
    else:
        del body["stream"]
        [whole], [streamed] = small.whole(path, **body), small.streamed(path, **body)
        assert whole == streamed and whole[1] == "length"
        usage = small.post(path, **body).json()["usage"]
        assert usage["completion_tokens"] == (0 if limit == 0 else 64 - length)


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_prompt_beside_a_short_one(small: Any, stream: bool) -> None:
    """Nothing of the list is answered, and the short one alone is."""
    found = small.post(COMPLETE, prompt=["x", "x" * 65], stream=stream)
    assert "64 tokens" in small.refusal(found, "prompt")
    assert small.whole(COMPLETE, prompt="q", temperature=0) == [("nobody is distur", "length")]


@pytest.mark.parametrize("path", [COMPLETE, CHAT])
def test_what_is_left_out_fills_the_context(small: Any, path: str) -> None:
    ask = {"messages": [{"role": "user", "content": "xx"}]} if path == CHAT else {"prompt": "xx"}
    usage = small.post(path, **ask, **GREEDY).json()["usage"]
    assert usage["completion_tokens"] == (62 if path == CHAT else 16)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["", [""], [], [[]], ["x", ""], [[70], []]])
def test_nothing_is_no_prompt(small: Any, prompt: Any, stream: bool) -> None:
    small.refusal(small.post(COMPLETE, prompt=prompt, stream=stream), "prompt")
    assert small.whole(COMPLETE, prompt="x", max_tokens=1) == [("", "stop")]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("content", ["", None, []])
def test_a_chat_that_renders_to_nothing(small: Any, content: Any, stream: bool) -> None:
    talk = [{"role": "user", "content": content}]
    small.refusal(small.post(CHAT, messages=talk, stream=stream), "messages")
    small.refusal(small.post(CHAT, messages=[], stream=stream), "messages")
    assert small.whole(CHAT, messages=[{"role": "user", "content": "x"}]) == [("", "stop")]


@pytest.mark.parametrize("prompt", ["", [""]])
def test_a_token_of_the_tokenizer_is_a_prompt(begun: Any, prompt: Any) -> None:
    assert begun.whole(COMPLETE, prompt=prompt, temperature=0) == [("hello", "stop")]
    assert begun.streamed(COMPLETE, prompt=prompt, temperature=0) == [("hello", "stop")]
    begun.refusal(begun.post(COMPLETE, prompt=[]), "prompt")
    begun.refusal(begun.post(COMPLETE, prompt=[[]]), "prompt")
    begun.refusal(begun.post(COMPLETE, prompt="", add_special_tokens=False), "prompt")


@pytest.mark.parametrize("path", [COMPLETE, CHAT])
@pytest.mark.parametrize("n", [9, 64])
def test_more_answers_than_seats(site: Any, path: str, n: int) -> None:
    """They come in waves; the next request is served too."""
    ask = {"prompt": "the cat", "messages": [{"role": "user", "content": "hi"}]}
    body = {**ask, **GREEDY, "max_tokens": 4}
    with site.accompanied():
        [one] = site.whole(path, **body)
        assert site.whole(path, **body, n=n) == [one] * n
        assert site.streamed(path, **body, n=n) == [one] * n
        assert site.whole(path, **body) == [one]
    site.settled()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_an_echo_without_an_answer(site: Any, logprobs: int | None, stream: bool) -> None:
    body = {"prompt": "abc", "echo": True, "max_tokens": 0, "logprobs": logprobs}
    shown = site.streamed if stream else site.whole
    assert shown(COMPLETE, **body) == [("abc", "length")]
    documents = site.events(COMPLETE, **body) if stream else [site.post(COMPLETE, **body).json()]
    told = [one["choices"][0]["logprobs"] for one in documents]
    if logprobs is None:
        assert told == [None] * len(told)
        return
    tokens = [piece for one in told for piece in one["tokens"]]
    assert "".join(tokens) == "abc"
    values = [value for one in told for value in one["token_logprobs"]]
    assert values[0] is None and len(values) == len(tokens)
    top = [entry for one in told for entry in one["top_logprobs"]][1:]
    assert all(logprobs <= len(entry) <= logprobs + 1 for entry in top)


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_always_has_an_answer(site: Any, stream: bool) -> None:
    talk = [{"role": "user", "content": "hi"}]
    message = site.refusal(
        site.post(CHAT, messages=talk, max_tokens=0, stream=stream), "max_tokens"
    )
    assert "between 1 and" in message
