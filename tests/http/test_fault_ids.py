"""Token ids at the borders of the vocabulary: refused by their place, or taken."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

PATH = "/v1/completions"
JSON = {"content-type": "application/json"}
GOOD = {"max_tokens": 3, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module", autouse=True)
def beside(site: Any) -> Iterator[None]:
    with site.accompanied():
        yield


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("[1,2,5279552648203111001]", ["token 2 is 5279552648203111001", "0 to 299"]),
        ("[300]", ["token 0 is 300", "0 to 299"]),
        ("[-1]", ["token 0 is -1", "0 to 299"]),
        ("[5,2147483648]", ["token 1 is 2147483648", "0 to 299"]),
        ("[5,-9223372036854775807]", ["token 1 is -9223372036854775807", "0 to 299"]),
        ("[5,18446744073709551621]", ["oken 1 ", "too large"]),
        ("[[5],[5,300]]", ["token 1 is 300", "0 to 299"]),
        ("[true]", ["prompt[0]"]), ("[5,true]", ["prompt[1]", "integers"]),
        ("[1.5]", ["prompt[0]"]), ("[5,1.5]", ["prompt[1]", "integers"]),
        ('[[1,2],"x"]', ["prompt[1]"]), ('["x",[1]]', ["prompt[1]"]),
        ("[[1],[null]]", ["prompt[1]"]),
    ],
)  # fmt: skip
def test_the_place_and_the_vocabulary_are_named(
    site: Any, prompt: str, words: list[str], stream: bool
) -> None:
    text = f'{{"prompt":{prompt},"stream":{json.dumps(stream)}}}'
    message = site.refusal(site.http.post(PATH, content=text, headers=JSON), "prompt")
    assert all(word in message for word in words), message
    assert site.whole(PATH, prompt=[299], **GOOD)[0][1] == "length"


def test_the_last_id_is_one(site: Any) -> None:
    assert site.whole(PATH, prompt=[299], **GOOD) == site.streamed(PATH, prompt=[299], **GOOD)


def test_ids_that_only_the_model_knows(scripted: Any, serve: Any) -> None:
    """A model may have more rows than its tokenizer has tokens."""
    with serve(scripted({"a": ["b"]}, vocab_size=300)) as site:
        assert site.post("/tokenize", prompt="a").json()["count"] == 1
        assert site.whole(PATH, prompt=[299], max_tokens=2) == [("", "stop")]
        assert "0 to 299" in site.refusal(site.post(PATH, prompt=[300]), "prompt")
        found = site.post(PATH, prompt=[299], echo=True, logprobs=2, max_tokens=2)
        assert found.status_code == 200


@pytest.mark.parametrize("path", [PATH, "/v1/chat/completions"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_bias_bans_and_forces(site: Any, path: str, temperature: int) -> None:
    ask = {"prompt": "the cat", "messages": [{"role": "user", "content": "hi"}]}
    body = {**ask, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}
    free = ids(site, path, {**body, "temperature": 0}, stream=False)
    body["temperature"] = temperature
    for stream in (False, True):
        forced = ids(site, path, {**body, "logit_bias": {"70": 100}}, stream)
        assert forced == [70] * 8
        banned = {str(token): -100 for token in free}
        left = ids(site, path, {**body, "logit_bias": banned}, stream)
        assert len(left) == 8 and not set(left) & set(free)


def ids(site: Any, path: str, body: dict[str, Any], stream: bool) -> list[int]:
    documents = site.events(path, **body) if stream else [site.post(path, **body).json()]
    choices = [choice for one in documents for choice in one["choices"]]
    return [token for choice in choices for token in choice.get("token_ids") or ()]
