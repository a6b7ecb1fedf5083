"""What requests may ask beside OpenAI's fields, and what answers say then."""

import json
from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from jackfield import __version__

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
IGNORED = "x-jackfield-ignored-fields"
TALK = [{"role": "user", "content": "the cat"}]
CONTINUED: dict[str, Any] = {
    "messages": [*TALK, {"role": "assistant", "content": "sat on"}],
    "add_generation_prompt": False,
    "continue_final_message": True,
}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


def answer(site: Any, path: str, **body: Any) -> Any:
    """The body of an answer that must be one."""
    response = site.post(path, **{**GREEDY, **body})
    assert response.status_code == 200, response.text
    return response.json()


def refused(site: Any, path: str, **body: Any) -> tuple[str, str]:
    """The field and the code of a refusal."""
    response = site.post(path, **{**GREEDY, **body})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    return error["param"], error["code"]


def chunks(site: Any, path: str, **body: Any) -> list[Any]:
    """The documents of a stream, which must end as it should."""
    text = site.post(path, **{**GREEDY, "stream": True, **body}).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("path", [COMPLETE, CHAT])
def test_every_chunk_counts(site: Any, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked = {"prompt": "the cat"} if path == COMPLETE else {"messages": TALK}
    *told, last = chunks(site, path, stream_options=options, **asked)
    counted = [one["usage"]["completion_tokens"] for one in told]
    assert counted == sorted(counted)
    assert counted[-1] == 6
    assert {one["usage"]["prompt_tokens"] for one in told} == {last["usage"]["prompt_tokens"]}
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 6)
    first = told[0]["usage"]
    assert first["total_tokens"] == first["prompt_tokens"] + first["completion_tokens"]


def test_each_choice_is_counted_by_itself(site: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    told = chunks(site, COMPLETE, prompt="the cat", n=2, stream_options=options)
    ends = [one for one in told if one["choices"] and one["choices"][0]["finish_reason"]]
    assert [one["usage"]["completion_tokens"] for one in ends] == [6, 6]
    assert told[-1]["usage"]["completion_tokens"] == 12


def test_continuous_counts_need_the_last_one(site: Any) -> None:
    options = {"include_usage": False, "continuous_usage_stats": True}
    told = chunks(site, COMPLETE, prompt="the cat", stream_options=options)
    assert [one for one in told if one.get("usage") or not one["choices"]] == []


@pytest.mark.parametrize("side", ["left", "right", None])
def test_a_long_prompt_is_cut(site: Any, side: str | None) -> None:
    ids = list(range(60, 90))
    found = answer(
        site, COMPLETE, prompt=ids, truncate_prompt_tokens=4, truncation_side=side,
        return_token_ids=True,
    )  # fmt: skip
    kept = ids[:4] if side == "right" else ids[-4:]
    assert found["choices"][0]["prompt_token_ids"] == kept
    assert found["usage"]["prompt_tokens"] == 4
    plain = answer(site, COMPLETE, prompt=kept)
    assert found["choices"][0]["text"] == plain["choices"][0]["text"]


def test_a_cut_text_is_echoed_as_it_was_read(site: Any) -> None:
    text = "the cat sat on the mat"
    fields = {"echo": True, "max_tokens": 0, "logprobs": 0, "truncate_prompt_tokens": 3}
    choice = answer(site, COMPLETE, prompt=text, **fields)["choices"][0]
    assert text.endswith(choice["text"])
    assert len(choice["logprobs"]["tokens"]) == 3
    whole = answer(site, COMPLETE, prompt=text, **{**fields, "truncate_prompt_tokens": 200})
    assert whole["choices"][0]["text"] == text


def test_a_cut_to_what_fits(site: Any) -> None:
    found = answer(site, COMPLETE, prompt=[70] * 300, truncate_prompt_tokens=-1)
    assert found["usage"]["total_tokens"] == 256
    chat = answer(site, CHAT, messages=TALK, truncate_prompt_tokens=2, max_tokens=1)
    assert chat["usage"]["prompt_tokens"] == 2


@pytest.mark.parametrize("most", [251, 9000, -2])
def test_a_cut_that_leaves_no_room(site: Any, most: int) -> None:
    field, _ = refused(site, COMPLETE, prompt="a", truncate_prompt_tokens=most)
    assert field == "truncate_prompt_tokens"


def test_a_cut_to_nothing(site: Any) -> None:
    assert refused(site, COMPLETE, prompt="a", truncate_prompt_tokens=0)[0] == "prompt"


@pytest.mark.parametrize("limit", [7, 10_000, None])
def test_an_answer_ends_with_the_context(site: Any, limit: int | None) -> None:
    found = answer(site, COMPLETE, prompt=[70] * 250, max_tokens=limit)
    assert found["usage"]["total_tokens"] == 256
    assert found["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("limit", [10_000, None])
def test_a_chat_ends_with_the_context(site: Any, limit: int | None) -> None:
    found = answer(site, CHAT, messages=TALK, max_tokens=limit)
    assert found["usage"]["total_tokens"] == 256
    assert found["choices"][0]["finish_reason"] == "length"


def test_tokens_are_named_by_number(site: Any) -> None:
    fields = {"return_tokens_as_token_ids": True, "return_token_ids": True, "logprobs": 1}
    choice = answer(site, COMPLETE, prompt="the cat", echo=True, **fields)["choices"][0]
    ids = [*choice["prompt_token_ids"], *choice["token_ids"]]
    scores = choice["logprobs"]
    assert scores["tokens"] == [f"token_id:{token}" for token in ids]
    assert scores["top_logprobs"][0] is None
    for place, token in enumerate(ids[1:], 1):
        told = scores["top_logprobs"][place]
        assert told[f"token_id:{token}"] == scores["token_logprobs"][place]
    named = answer(site, COMPLETE, prompt="the cat", echo=True, logprobs=1)["choices"][0]
    assert named["logprobs"]["text_offset"] == scores["text_offset"]
    assert "".join(named["logprobs"]["tokens"]) == choice["text"]


def test_tokens_of_a_chat_are_named_by_number(site: Any) -> None:
    fields = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    told = [
        answer(site, CHAT, messages=TALK, return_tokens_as_token_ids=flag, **fields)["choices"][0]
        for flag in (True, False)
    ]
    numbered, named = (one["logprobs"]["content"] for one in told)
    assert [one["token"] for one in numbered] == [f"token_id:{t}" for t in told[0]["token_ids"]]
    assert [one["bytes"] for one in numbered] == [one["bytes"] for one in named]
    assert numbered[0]["top_logprobs"][0]["token"] == numbered[0]["token"]


def test_a_continued_message_is_echoed(site: Any) -> None:
    plain = answer(site, CHAT, **CONTINUED)["choices"][0]["message"]
    echoed = answer(site, CHAT, echo=True, **CONTINUED)["choices"][0]["message"]
    assert echoed == {**plain, "content": "sat on" + plain["content"]}
    told = chunks(site, CHAT, echo=True, **CONTINUED)
    assert told[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert told[1]["choices"][0]["delta"] == {"content": "sat on"}
    text = "".join(one["choices"][0]["delta"]["content"] for one in told)
    assert text == echoed["content"]


def test_nothing_is_echoed_of_somebody_else(site: Any) -> None:
    plain = answer(site, CHAT, messages=TALK)["choices"][0]["message"]
    assert answer(site, CHAT, messages=TALK, echo=True)["choices"][0]["message"] == plain


def test_the_tier_that_served_is_told(site: Any) -> None:
    whole = answer(site, CHAT, messages=TALK, service_tier="flex")
    assert ChatCompletion.model_validate_json(json.dumps(whole), strict=True)
    assert whole["service_tier"] == "default"
    told = chunks(site, CHAT, messages=TALK, service_tier="auto")
    assert {one["service_tier"] for one in told} == {"default"}
    assert ChatCompletionChunk.model_validate_json(json.dumps(told[0]), strict=True)
    assert "service_tier" not in answer(site, CHAT, messages=TALK)
    assert refused(site, CHAT, messages=TALK, service_tier="best")[0] == "service_tier"


def test_answers_tell_the_version(site: Any) -> None:
    chat, completion = answer(site, CHAT, messages=TALK), answer(site, COMPLETE, prompt="a")
    assert chat["system_fingerprint"] == f"jackfield-{__version__}"
    assert Completion.model_validate_json(json.dumps(completion), strict=True)
    told = chunks(site, COMPLETE, prompt="a")
    assert {one["system_fingerprint"] for one in told} == {completion["system_fingerprint"]}


def test_what_asks_for_nothing_is_taken_in_silence(site: Any) -> None:
    quiet: dict[str, Any] = {
        "store": False, "modalities": ["text"], "reasoning_effort": "none", "user": "a",
        "metadata": {"a": "b"}, "safety_identifier": "a", "prompt_cache_key": "a",
        "parallel_tool_calls": True, "service_tier": "auto", "spaces_between_special_tokens": True,
    }  # fmt: skip
    response = site.post(CHAT, messages=TALK, **GREEDY, **quiet)
    assert (response.status_code, response.headers.get(IGNORED)) == (200, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [("store", True), ("reasoning_effort", "high"), ("verbosity", "low"),
     ("modalities", ["text", "audio"])],
)  # fmt: skip
def test_what_has_no_effect_is_named(site: Any, field: str, value: Any) -> None:
    response = site.post(CHAT, messages=TALK, **GREEDY, **{field: value})
    assert (response.status_code, response.headers[IGNORED]) == (200, field)


def test_other_forms_of_the_text_are_refused(site: Any) -> None:
    field = "spaces_between_special_tokens"
    assert refused(site, COMPLETE, prompt="a", **{field: False})[0] == field
    assert refused(site, CHAT, messages=TALK, **{field: False})[0] == field


def test_special_tokens_are_added_on_demand(site: Any) -> None:
    tokenizer = site.llm.tokenizer
    for added in (True, False):
        ids = tokenizer.encode("the cat", add_special_tokens=added)
        fields = {"add_special_tokens": added, "return_token_ids": True}
        found = answer(site, COMPLETE, prompt="the cat", **fields)
        assert found["choices"][0]["prompt_token_ids"] == ids
        chat = answer(site, CHAT, messages=TALK, **fields)
        told = site.post("/tokenize", messages=TALK, add_special_tokens=added).json()
        assert chat["prompt_token_ids"] == told["tokens"]


def test_token_strings_are_those_of_the_vocabulary(site: Any) -> None:
    found = site.post("/tokenize", prompt="the cat", return_token_strs=True).json()
    vocabulary = site.llm.tokenizer
    assert found["token_strs"] == [vocabulary.token(token) for token in found["tokens"]]


def test_what_is_told_of_the_tokenizer_and_the_model(site: Any) -> None:
    info = site.http.get("/tokenizer_info").json()
    special = site.llm.tokenizer.special_ids
    assert {int(index) for index in info["added_tokens_decoder"]} == special
    assert info["eos_token"] in info["added_tokens_decoder"].values()
    (card,) = site.http.get("/v1/models").json()["data"]
    assert (card["root"], card["parent"]) == (site.llm.summary.model, None)
