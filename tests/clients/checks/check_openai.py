"""chats, completions, streams, usage, logprobs, stop, seed, bias, errors with keys, headers"""

from typing import Any

import httpx2
from given import KEY, KEYED_URL, LONG, MODEL, URL, raises
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

TALK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 12}
sent: list[httpx2.Request] = []
client = OpenAI(
    base_url=f"{URL}/v1", api_key="none", max_retries=2,
    http_client=httpx2.Client(event_hooks={"request": [sent.append]}, timeout=120),
)  # fmt: skip
chats, completions = client.chat.completions, client.completions


def strictly(kind: Any, raw: Any) -> Any:
    """The document of a raw response, as the client's types want it, without conversions."""
    assert raw.headers["x-request-id"] and raw.headers["content-type"] == "application/json"
    return kind.model_validate_json(raw.text, strict=True)


def check_chats() -> None:
    whole = strictly(ChatCompletion, chats.with_raw_response.create(messages=TALK, **GREEDY))
    text = whole.choices[0].message.content
    assert "Paris" in text, text
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    stream = chats.create(
        messages=TALK, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    chunks = list(stream)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(exclude_unset=True), strict=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == text
    assert chunks[-1].choices == []
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert all(getattr(chunks[-1].usage, k) == getattr(whole.usage, k) for k in counts)


def check_several_answers() -> None:
    raw = chats.with_raw_response.create(
        messages=TALK, n=2, seed=5, logprobs=True, top_logprobs=3, temperature=1, max_tokens=6,
        model=MODEL,
    )  # fmt: skip
    whole = strictly(ChatCompletion, raw)
    assert [choice.index for choice in whole.choices] == [0, 1]
    for choice in whole.choices:
        entries = choice.logprobs.content
        assert 1 <= len(entries) <= 6
        assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in entries)
        data = bytes(byte for entry in entries for byte in entry.bytes)
        assert data.decode(errors="replace").removesuffix("<|im_end|>") == choice.message.content
    again = chats.create(
        messages=TALK, n=2, seed=5, temperature=1, max_tokens=6, model=MODEL
    )
    assert [c.message.content for c in again.choices] == [c.message.content for c in whole.choices]


def check_completions() -> None:
    prompt = "1, 2, 3, 4, 5,"
    whole = strictly(
        Completion, completions.with_raw_response.create(prompt=prompt, logprobs=2, **GREEDY)
    )
    text = whole.choices[0].text
    assert text.startswith(" 6, 7"), text
    assert "".join(whole.choices[0].logprobs.tokens) == text
    assert whole.usage.completion_tokens == 12
    chunks = list(completions.create(prompt=prompt, stream=True, **GREEDY))
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    stopped = completions.create(prompt=prompt, stop=["7"], **GREEDY).choices[0]
    assert (stopped.text, stopped.finish_reason) == (text[: text.index("7")], "stop")


def check_bias() -> None:
    body: dict[str, Any] = {**GREEDY, "max_tokens": 3, "extra_body": {"return_token_ids": True}}
    forced = completions.create(prompt="x", logit_bias={"70": 100}, **body)
    assert forced.choices[0].token_ids == [70] * 3


def check_errors() -> None:
    """Each has its class, and is not tried again."""
    sent.clear()
    errors = [
        raises(BadRequestError, chats.create, messages=TALK, model=MODEL, temperature=-1),
        raises(BadRequestError, completions.create, prompt=LONG, model=MODEL),
        raises(NotFoundError, completions.create, prompt="x", model="none"),
        raises(NotFoundError, client.models.retrieve, "none"),
    ]
    assert [error.param for error in errors] == ["temperature", "prompt", "model", "model"]
    assert errors[1].code == "context_length_exceeded"
    assert errors[2].code == errors[3].code == "model_not_found"
    assert len(sent) == 4
    assert all(error.request_id for error in errors)
    wrong = OpenAI(base_url=f"{KEYED_URL}/v1", api_key="wrong", max_retries=0)
    assert raises(AuthenticationError, wrong.models.list).code == "invalid_api_key"
    right = OpenAI(base_url=f"{KEYED_URL}/v1", api_key=KEY, max_retries=0)
    assert right.completions.create(model="tiny", prompt="x", max_tokens=2).usage.total_tokens >= 2


check_chats()
check_several_answers()
check_completions()
check_bias()
check_errors()
