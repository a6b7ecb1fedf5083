"""openai-python against a real server: answers, streams, and errors with their classes."""

import json
from typing import Any
from uuid import uuid4

import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

TEXT = "the cat sat on"
TALK: list[Any] = [{"role": "user", "content": "the cat"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 8}
IGNORE = {"ignore_eos": True}


def strictly(kind: type[BaseModel], text: str) -> Any:
    """JSON as the client's own types want it, without any conversion."""
    return kind.model_validate_json(text, strict=True)


def frames(text: str) -> list[Any]:
    """The documents of an event stream; it must end with [DONE]."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_models(site: Any) -> None:
    (card,) = site.openai.models.list().data
    assert (card.id, card.object, card.max_model_len) == ("tiny", "model", 256)
    assert site.openai.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError) as caught:
        site.openai.models.retrieve("none")
    assert caught.value.code == "model_not_found"


def test_a_chat_and_its_stream_say_the_same(site: Any) -> None:
    own = {**IGNORE, "cache_salt": uuid4().hex}  # other tests have sent the same
    whole = site.openai.chat.completions.create(messages=TALK, extra_body=own, **GREEDY)
    choice = whole.choices[0]
    assert (choice.finish_reason, choice.message.role) == ("length", "assistant")
    assert whole.usage.completion_tokens == 8
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 8
    assert whole.usage.prompt_tokens_details.cached_tokens == 0
    chunks = list(
        site.openai.chat.completions.create(
            messages=TALK, extra_body=own, stream=True,
            stream_options={"include_usage": True}, **GREEDY,
        )
    )  # fmt: skip
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == choice.message.content
    assert [c.choices[0].finish_reason for c in chunks[:-1]][-1] == "length"
    usage = chunks[-1].usage
    details = usage.prompt_tokens_details
    assert chunks[-1].choices == [] and usage.total_tokens == whole.usage.total_tokens
    assert details.cached_tokens == 16  # a block of them
    assert len({chunk.id for chunk in chunks}) == 1


def test_answers_are_strictly_what_the_client_types_say(site: Any) -> None:
    more = {"logprobs": True, "top_logprobs": 2, "n": 2, "messages": TALK, **GREEDY}
    whole = site.post("/v1/chat/completions", **more)
    parsed = strictly(ChatCompletion, whole.text)
    assert [choice.index for choice in parsed.choices] == [0, 1]
    usage = {"include_usage": True}
    stream = site.post("/v1/chat/completions", stream=True, stream_options=usage, **more)
    assert stream.headers["content-type"].startswith("text/event-stream")
    for frame in frames(stream.text):
        strictly(ChatCompletionChunk, json.dumps(frame))
    text = {"prompt": TEXT, "logprobs": 2, "n": 2, **GREEDY}
    strictly(Completion, site.post("/v1/completions", **text).text)
    for frame in frames(site.post("/v1/completions", stream=True, **text).text):
        # The types leave out that a chunk before the last one has no reason.
        frame["choices"][0]["finish_reason"] = frame["choices"][0]["finish_reason"] or "stop"
        strictly(Completion, json.dumps(frame))


@pytest.mark.parametrize("n", [1, 3])
def test_usage_in_streams(site: Any, n: int) -> None:
    """Null on all chunks but the last when it is asked for; otherwise there is no such field."""
    more = {"messages": TALK, "stream": True, "n": n, **GREEDY, **IGNORE}
    *chunks, last = frames(
        site.post("/v1/chat/completions", stream_options={"include_usage": True}, **more).text
    )
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 8 * n)
    single = site.post("/tokenize", messages=TALK).json()["count"]
    assert last["usage"]["prompt_tokens"] == single
    ends = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]]
    assert ends == ["length"] * n
    for options in ({}, {"stream_options": {"include_usage": False}}):
        plain = frames(site.post("/v1/chat/completions", **more, **options).text)
        assert all("usage" not in chunk for chunk in plain)


def test_completions_of_all_forms_of_prompts(site: Any) -> None:
    ids = site.post("/tokenize", prompt=TEXT).json()["tokens"]
    prompts: list[Any] = [TEXT, [TEXT], ids, [ids]]
    texts = [
        site.openai.completions.create(prompt=prompt, **GREEDY).choices[0].text
        for prompt in prompts
    ]
    assert len(set(texts)) == 1
    both = site.openai.completions.create(prompt=[TEXT, "one two"], n=2, **GREEDY)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert [both.choices[index].text for index in (0, 1)] == [texts[0]] * 2
    chunks = list(
        site.openai.completions.create(prompt=[TEXT, "one two"], n=2, stream=True, **GREEDY)
    )
    for index, choice in enumerate(both.choices):
        own = [c.choices[0].text for c in chunks if c.choices[0].index == index]
        assert "".join(own) == choice.text


def test_sixteen_tokens_is_the_default_of_a_completion(site: Any) -> None:
    found = site.post("/v1/completions", prompt=TEXT, ignore_eos=True).json()
    assert found["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["\n1. Carol has 20", "caf\u00e9 \U0001f600 x"])
def test_echo_with_logprobs(site: Any, prompt: str, stream: bool) -> None:
    body = {"prompt": prompt, "echo": True, "logprobs": 1, "stream": stream, **GREEDY}
    found = site.post("/v1/completions", **body)
    documents = frames(found.text) if stream else [found.json()]
    choices = [document["choices"][0] for document in documents]
    text = "".join(choice["text"] for choice in choices)
    told: dict[str, list[Any]] = {}
    for choice in choices:
        for name, values in (choice["logprobs"] or {}).items():
            told.setdefault(name, []).extend(values)
    assert text.startswith(prompt)
    assert "".join(told["tokens"]) == text
    offsets, length = [], 0
    for token in told["tokens"]:
        offsets.append(length)
        length += len(token)
    assert told["text_offset"] == offsets
    assert told["token_logprobs"][0] is None
    assert all(value <= 0 for value in told["token_logprobs"][1:])


@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_echo_without_an_answer(site: Any, logprobs: int | None) -> None:
    body = {**GREEDY, "max_tokens": 0}
    found = site.post("/v1/completions", prompt="abc", echo=True, logprobs=logprobs, **body).json()
    choice = found["choices"][0]
    assert (choice["text"], found["usage"]["completion_tokens"]) == ("abc", 0)
    if logprobs is None:
        assert choice["logprobs"] is None
    else:
        assert "".join(choice["logprobs"]["tokens"]) == "abc"
    assert site.post("/v1/chat/completions", messages=TALK, max_tokens=0).status_code == 400


def test_logprobs_of_a_chat(site: Any) -> None:
    found = site.openai.chat.completions.create(
        messages=TALK, logprobs=True, top_logprobs=3,
        extra_body={**IGNORE, "skip_special_tokens": False}, **GREEDY,
    ).choices[0]  # fmt: skip
    assert len(found.logprobs.content) == 8
    for entry in found.logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[0].logprob >= entry.top_logprobs[1].logprob
    data = bytes(byte for entry in found.logprobs.content for byte in entry.bytes)
    assert data.decode(errors="replace") == found.message.content


def test_a_stop_text_ends_an_answer(site: Any) -> None:
    full = site.openai.completions.create(prompt=TEXT, **GREEDY).choices[0].text
    stop = full[3:5]
    for stream in (False, True):
        body = {"prompt": TEXT, "stop": [stop], "stream": stream, **GREEDY}
        found = site.post("/v1/completions", **body)
        choices = [d["choices"][0] for d in (frames(found.text) if stream else [found.json()])]
        assert "".join(choice["text"] for choice in choices) == full[: full.index(stop)]
        assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", stop)


def test_a_seed_repeats_an_answer(site: Any) -> None:
    hot = {**GREEDY, "temperature": 1.5, "max_tokens": 12}
    one, same, other = (
        site.openai.completions.create(prompt=TEXT, seed=seed, **hot).choices[0].text
        for seed in (7, 7, 8)
    )
    assert one == same != other


@pytest.mark.parametrize("temperature", [0, 1])
def test_logit_bias_bans_and_forces(site: Any, temperature: int) -> None:
    body = {"prompt": TEXT, "max_tokens": 4, "temperature": temperature, "return_token_ids": True}
    forced = site.post("/v1/completions", logit_bias={"70": 100}, **body).json()
    assert forced["choices"][0]["token_ids"] == [70] * 4
    best = site.post("/v1/completions", **{**body, "temperature": 0}).json()
    first = best["choices"][0]["token_ids"][0]
    banned = site.post("/v1/completions", logit_bias={str(first): -100}, **body).json()
    assert first not in banned["choices"][0]["token_ids"]


def test_token_ids_and_prompt_logprobs(site: Any) -> None:
    ids = site.post("/tokenize", messages=TALK, add_generation_prompt=True).json()["tokens"]
    body = {"messages": TALK, "return_token_ids": True, **GREEDY, **IGNORE}
    found = site.post("/v1/chat/completions", prompt_logprobs=1, **body).json()
    assert found["prompt_token_ids"] == ids
    assert len(found["choices"][0]["token_ids"]) == 8
    assert found["prompt_logprobs"][0] is None and len(found["prompt_logprobs"]) == len(ids)
    chunks = frames(site.post("/v1/chat/completions", stream=True, **body).text)
    assert chunks[0]["prompt_token_ids"] == ids
    streamed = [token for c in chunks for token in c["choices"][0].get("token_ids", [])]
    assert streamed == found["choices"][0]["token_ids"]


def test_the_last_message_is_continued(site: Any) -> None:
    talk = [*TALK, {"role": "assistant", "content": "one two"}]
    tokens = site.post("/tokenize", messages=talk, continue_final_message=True).json()["tokens"]
    text = site.post("/detokenize", tokens=tokens).json()["prompt"]
    assert text.endswith("<|im_start|>assistant\none two")
    body = {"messages": talk, "continue_final_message": True, **GREEDY}
    found = site.post("/v1/chat/completions", **body).json()
    assert found["usage"]["prompt_tokens"] == len(tokens)


ERRORS = [
    ({"model": "other"}, openai.NotFoundError, "model", "model_not_found"),
    ({"temperature": -1}, openai.BadRequestError, "temperature", "invalid_value"),
    ({"n": 0}, openai.BadRequestError, "n", "invalid_value"),
    ({"messages": []}, openai.BadRequestError, "messages", "invalid_value"),
    (
        {"messages": [{"role": "user", "content": "x" * 300}]}, openai.BadRequestError,
        "messages", "context_length_exceeded",
    ),
    ({"tools": [{"type": "function"}]}, openai.BadRequestError, "tools", "invalid_value"),
    (
        {"response_format": {"type": "json_object"}}, openai.BadRequestError,
        "response_format", "invalid_value",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "param", "code"), ERRORS)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_have_the_class_that_clients_test(
    site: Any, change: Any, kind: type[openai.APIStatusError], param: str, code: str, stream: bool
) -> None:
    body = {"messages": TALK, "stream": stream, **GREEDY, **change}
    with pytest.raises(kind) as caught:
        site.openai.chat.completions.create(**body)
    error = caught.value
    assert (error.param, error.code) == (param, code)
    assert error.request_id
    assert error.response.headers["x-should-retry"] == "false"


def test_a_long_prompt_is_told_in_words_that_clients_know(site: Any) -> None:
    found = site.post("/v1/completions", prompt="x" * 300).json()["error"]
    assert found["message"].startswith("This model's maximum context length is 256 tokens. ")
    assert found["code"] == "context_length_exceeded"
    full = site.post("/v1/completions", prompt=[70] * 256, max_tokens=1).json()["error"]
    assert full["code"] == "context_length_exceeded"
    rest = site.post("/v1/completions", prompt=[70] * 250, max_tokens=9000, ignore_eos=True)
    assert rest.json()["usage"]["total_tokens"] == 256
