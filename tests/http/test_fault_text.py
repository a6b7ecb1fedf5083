"""Characters that several tokens make, and several characters that look like one."""

from collections.abc import Iterator
from typing import Any

import pytest

EMOJI, HAN = "\U0001f600".encode(), "\u6f22".encode()
FLAG, TONE = "\U0001f1eb\U0001f1f7", "\U0001f44d\U0001f3fd"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
SCRIPT: dict[str, list[Any]] = {
    "a": [EMOJI[:2], EMOJI[2:], "x"],
    "b": [*(EMOJI[place : place + 1] for place in range(4)), "x"],
    "c": [HAN[:1], HAN[1:], "x"],
    "d": ["e", "\u0301", "x"],
    "e": [*FLAG, *TONE, *FAMILY, "\u2764", "\ufe0f"],
    "q": list("nobody is disturbed"),
}
TEXTS = {
    "a": "\U0001f600x", "b": "\U0001f600x", "c": "\u6f22x", "d": "e\u0301x",
    "e": f"{FLAG}{TONE}{FAMILY}\u2764\ufe0f",
}  # fmt: skip


@pytest.fixture(scope="module")
def told(scripted: Any, serve: Any) -> Iterator[Any]:
    with (
        serve(scripted(SCRIPT, template="{{ messages[0].content }}")) as site,
        site.accompanied(prompt="q", ignore_eos=False),
    ):
        yield site


@pytest.mark.parametrize("prompt", TEXTS)
def test_stream_and_whole_text_and_all_ids_are_one(told: Any, prompt: str) -> None:
    assert told.everywhere(prompt) == [(TEXTS[prompt], "stop")] * 4
    found = told.post("/v1/completions", prompt=prompt, return_token_ids=True).json()
    ids = found["choices"][0]["token_ids"]
    assert len(ids) == len(SCRIPT[prompt]) + 1
    decoded = told.post("/detokenize", tokens=ids[:-1]).json()["prompt"]
    assert decoded == TEXTS[prompt]


@pytest.mark.parametrize("prompt", TEXTS)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_no_delta_holds_half_a_character(told: Any, prompt: str, path: str) -> None:
    talk = [{"role": "user", "content": prompt}]
    ask = {"messages": talk} if "chat" in path else {"prompt": prompt}
    choices = [event["choices"][0] for event in told.events(path, **ask)]
    pieces = [one["text"] if "text" in one else one["delta"].get("content", "") for one in choices]
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == TEXTS[prompt]


@pytest.mark.parametrize("prompt", TEXTS)
def test_pieces_of_log_probabilities_join_to_the_text(told: Any, prompt: str) -> None:
    body = {"prompt": prompt, "logprobs": 1, "temperature": 0}
    whole = told.post("/v1/completions", **body).json()["choices"][0]["logprobs"]["tokens"]
    events = told.events("/v1/completions", **body)
    streamed = [piece for event in events for piece in event["choices"][0]["logprobs"]["tokens"]]
    assert "".join(whole) == "".join(streamed) == TEXTS[prompt]
