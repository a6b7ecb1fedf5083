"""How answers end: at every end of the model, at the context, by a failure, and one by one."""

import json
import logging
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from safetensors.torch import load_file, save_file

from jackfield.core.testing.scripted_folder import END, TURN
from jackfield.core.testing.tiny_model import write_tiny_model

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
BOTH = (COMPLETE, CHAT)
TALK = [{"role": "user", "content": "hi"}]
SCRIPT: dict[str, list[str]] = {
    "l": ["one", "<turn>", "two", "three", "four", "five", "<end>"],
    "q": list("nobody is disturbed"),
}
BROKEN = 9
"""A token that the model cannot read."""


@pytest.fixture(scope="module")
def ends(scripted: Any, serve: Any) -> Iterator[Any]:
    """A model with two ends."""
    folder = scripted(SCRIPT, template="{{ messages[0].content }}", eos_token_id=[END, TURN])
    with serve(folder) as site, site.accompanied(prompt="q", ignore_eos=False):
        yield site


@pytest.fixture(scope="module")
def short(folder: Path, serve: Any) -> Iterator[Any]:
    with serve(folder, max_model_len=32) as site, site.accompanied(max_tokens=20):
        yield site


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, serve: Any) -> Iterator[Any]:
    folder = write_tiny_model(tmp_path_factory.mktemp("broken"))
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][BROKEN] = math.nan
    save_file(weights, folder / "model.safetensors")
    with serve(folder) as site:
        yield site


def test_the_second_end_ends_too(ends: Any) -> None:
    assert ends.everywhere("l") == [("one", "stop")] * 4


def test_least_tokens_are_before_every_end(ends: Any) -> None:
    assert {reason for _, reason in ends.everywhere("l", min_tokens=5)} == {"stop"}
    assert all(text.endswith("twothreefourfive") for text, _ in ends.everywhere("l", min_tokens=5))
    body = {"prompt": "l", "min_tokens": 5, "return_token_ids": True, "temperature": 0}
    ids = ends.post(COMPLETE, **body).json()["choices"][0]["token_ids"]
    assert TURN not in ids and ids[-1] == END and END not in ids[:-1]


def test_ends_may_be_ignored_but_not_stop_ids(ends: Any) -> None:
    through = ends.everywhere("l", ignore_eos=True, max_tokens=9)
    assert through == [("onetwothreefourfive", "length")] * 4
    asked = ends.everywhere("l", ignore_eos=True, stop_token_ids=[TURN])
    assert asked == [("one", "stop")] * 4


@pytest.mark.parametrize("limit", [10_000, None])
def test_an_answer_never_goes_beyond_the_context(short: Any, limit: int | None) -> None:
    for path, ask in ((COMPLETE, {"prompt": "the cat"}), (CHAT, {"messages": TALK})):
        body = {**ask, "ignore_eos": True, "temperature": 0, "max_tokens": limit or 31}
        if limit is None and path == CHAT:
            del body["max_tokens"]
        [whole], [streamed] = short.whole(path, **body), short.streamed(path, **body)
        assert whole == streamed
        assert whole[1] == "length"
        usage = short.post(path, **body).json()["usage"]
        assert usage["total_tokens"] == 32


@pytest.mark.parametrize("path", BOTH)
def test_a_failure_under_way_ends_its_stream_only(
    broken: Any, path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins, meets a token that it cannot read, and says so; one line of the log tells why."""
    ask = {"messages": TALK} if path == CHAT else {"prompt": "the cat"}
    body = {**ask, "logit_bias": {str(BROKEN): 100}, "temperature": 0, "request_id": "ill"}
    engine, was_read = broken.llm.assembly.engine, threading.Event()
    step, running = engine.step, engine.lifecycle.planner.running

    def later() -> Any:
        if any(one.id == "ill" and one.output for one in running.values()):
            was_read.wait(10)
        return step()

    monkeypatch.setattr(engine, "step", later)
    with broken.accompanied(), caplog.at_level(logging.WARNING):
        with broken.http.stream("POST", path, json={**body, "stream": True}) as found:
            lines = (line.removeprefix("data: ") for line in found.iter_lines() if line)
            first = json.loads(next(lines))
            was_read.set()
            *rest, done = lines
        *begun, failed = first, *map(json.loads, rest)
        assert done == "[DONE]"
        [told] = [line for line in caplog.messages if "'ill'" in line]
        whole = broken.post(path, **body)
        assert (whole.status_code, whole.json()["error"]["code"]) == (500, "answer_failed")
    assert all(event["choices"][0]["finish_reason"] is None for event in begun)
    assert "no numbers" in failed["error"]["message"] and "no numbers" in told
    assert (failed["error"]["type"], failed["error"]["code"]) == ("server_error", "answer_failed")


LATE: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"), ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"), ({"seed": 2**70}, "seed"),
    ({"stop_token_ids": [300]}, "stop_token_ids"), ({"logit_bias": {"300": 1}}, "logit_bias"),
    ({"allowed_token_ids": [300]}, "allowed_token_ids"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ({"min_tokens": 255, "max_tokens": 256}, "min_tokens"),
]  # fmt: skip


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(("change", "param"), LATE, ids=[str(one[0]) for one in LATE])
def test_a_stream_is_refused_before_it_begins(
    site: Any, path: str, change: dict[str, Any], param: str
) -> None:
    """Whoever finds it wrong, the engine too."""
    body = {"prompt": "the cat", "messages": TALK, "stream": True, **change}
    site.refusal(site.post(path, **body), param)


@pytest.mark.parametrize("prompt", [[300], "x" * 257, [1] * 256])
def test_a_stream_of_a_prompt_that_does_not_fit_is_refused(site: Any, prompt: Any) -> None:
    site.refusal(site.post(COMPLETE, prompt=prompt, stream=True), "prompt")


def test_answers_end_one_by_one(site: Any) -> None:
    """Each has its own last chunk, when its time comes."""
    body = {
        "prompt": "the cat", "n": 4, "temperature": 1.5, "seed": 5, "max_tokens": 60,
        "stop_token_ids": list(range(3, 40)),
    }  # fmt: skip
    with site.accompanied():
        events = site.events(COMPLETE, **body, stream_options={"include_usage": True})
    *chunks, last = events
    order = [one["choices"][0]["index"] for one in chunks if one["choices"][0]["finish_reason"]]
    assert sorted(order) == [0, 1, 2, 3]
    ends = [place for place, one in enumerate(chunks) if one["choices"][0]["finish_reason"]]
    assert ends != list(range(len(chunks) - 4, len(chunks))), "all ended at once"
    assert last["choices"] == [] and last["usage"]["completion_tokens"] < 4 * 60
    assert site.streamed(COMPLETE, **body) == site.whole(COMPLETE, **body)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("path", BOTH)
def test_tokens_are_counted_once_at_the_end_of_a_stream(site: Any, path: str, n: int) -> None:
    body = {"n": n, "max_tokens": 8, "ignore_eos": True, "temperature": 0}
    body |= {"messages": TALK} if path == CHAT else {"prompt": "the cat"}
    first, second = ({**body, "cache_salt": uuid4().hex} for _ in range(2))
    *chunks, last = site.events(path, **first, stream_options={"include_usage": True})
    assert [chunk["usage"] for chunk in chunks] == [None] * len(chunks)
    assert last["choices"] == [] and last["usage"] == site.post(path, **second).json()["usage"]
    assert last["usage"]["completion_tokens"] == 8 * n
    for options in ({}, {"stream_options": {"include_usage": False}}):
        assert all("usage" not in chunk for chunk in site.events(path, **body, **options))


def test_an_answer_that_is_aborted_half_way_counts_nothing(slow: Any) -> None:
    body = {"prompt": "x", "ignore_eos": True, "max_tokens": 200, "stream": True}
    body |= {"request_id": "lost", "stream_options": {"include_usage": True}}
    with slow.http.stream("POST", COMPLETE, json=body) as found:
        lines = found.iter_lines()
        next(lines)
        slow.llm._thread.abort("lost")
        rest = [line.removeprefix("data: ") for line in lines if line]
    assert rest.pop() == "[DONE]"
    assert "aborted" in json.loads(rest.pop())["error"]["message"]
    assert all(json.loads(line)["usage"] is None for line in rest)
