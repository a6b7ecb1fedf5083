"""What a policy refuses: 429 with its reason and when to come again, before anything is sent."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import RateLimitError

PICKY = """
from jackfield.core.api import PolicyConfig, Verdict, hookimpl

VERDICTS = {4: Verdict.reject("try_later", 2.345), 5: Verdict.reject("never")}

class Picky:
    Config = PolicyConfig

    def __init__(self, config, context):
        pass

    @hookimpl
    def admit(self, requests, load):
        return [VERDICTS.get(one.num_prompt_tokens, Verdict.accept()) for one in requests]
"""


@pytest.fixture(scope="module")
def picky(folder: Path, serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that refuses prompts of four and of five tokens."""
    place = tmp_path_factory.mktemp("picky")
    info = place / "picky-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: picky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[jackfield.v1.schedulers]\npicky = picky:Picky\n")
    (place / "picky.py").write_text(PICKY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        importlib.invalidate_caches()
        with serve(folder, **{"scheduler.advisors": ["picky"]}) as site:
            yield site


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_with_a_time_to_come_again(picky: Any, stream: bool, n: int) -> None:
    body = {"prompt": [9] * 4, "stream": stream, "n": n, "temperature": 1, "max_tokens": 2}
    found = picky.post("/v1/completions", **body)
    assert found.status_code == 429
    assert found.headers["retry-after"] == "3"
    assert found.headers["retry-after-ms"] == "2345"
    assert "x-should-retry" not in found.headers
    assert found.json()["error"] == {
        "message": "refused by picky: try_later; try again in 2.35 s",
        "type": "rate_limit_error", "param": None, "code": "try_later",
    }  # fmt: skip
    picky.settled()


def test_for_good(picky: Any) -> None:
    with pytest.raises(RateLimitError) as caught:
        picky.openai.completions.create(model="tiny", prompt=[9] * 5)
    assert caught.value.code == "never"
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in caught.value.response.headers


def test_one_refused_prompt_refuses_the_list(picky: Any) -> None:
    found = picky.post("/v1/completions", prompt=[[9] * 3, [9] * 4], max_tokens=200)
    assert found.status_code == 429
    picky.settled()


def test_others_do_not_notice(picky: Any) -> None:
    body = {"prompt": [9] * 3, "max_tokens": 30, "temperature": 0, "ignore_eos": True}
    alone = picky.post("/v1/completions", **body).json()["choices"]
    with picky.openai.completions.create(model="tiny", stream=True, extra_body={"ignore_eos": True},
        prompt=[9] * 3, max_tokens=30, temperature=0) as stream:  # fmt: skip
        pieces = [next(stream).choices[0].text]
        assert picky.post("/v1/completions", prompt=[9] * 4).status_code == 429
        pieces += [chunk.choices[0].text for chunk in stream]
    assert "".join(pieces) == alone[0]["text"]
    assert 'jackfield_rejections_total{plugin="picky"}' in picky.http.get("/metrics").text
