"""openai-python against a real server that fails at times: what is tried again, and raw headers."""

import time
from typing import Any

import openai
import pytest

from jackfield.core.api import EngineStoppedError, RequestRejected

TEXT = "the cat sat on"
TALK: list[Any] = [{"role": "user", "content": "the cat"}]
GREEDY: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 8}


class Wait:
    """Stands for the clock of the client: waiting takes no time, and is noted."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)

    time = staticmethod(time.time)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the client wanted to wait before it asked again."""
    wait = Wait()
    monkeypatch.setattr("openai._base_client.time", wait)
    return wait.seconds


def failing(site: Any, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Let the next requests fail, one with each error; later ones work again."""
    follow, left = site.llm.follow, list(errors)

    def once(*given: Any, **more: Any) -> Any:
        if left:
            raise left.pop(0)
        return follow(*given, **more)

    monkeypatch.setattr(site.llm, "follow", once)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "kind", "seconds"),
    [
        (RequestRejected("busy", code="queue_full", retry_after=3), openai.RateLimitError, 3.0),
        (EngineStoppedError("starting"), openai.InternalServerError, None),
    ],
)
def test_what_may_work_later_is_tried_again(
    site: Any, monkeypatch: pytest.MonkeyPatch, waited: list[float], error: Exception,
    kind: type[openai.APIStatusError], seconds: float | None, stream: bool,
) -> None:  # fmt: skip
    body = {"messages": TALK, "stream": stream, **GREEDY}
    failing(site, monkeypatch, error, error)
    site.openai.with_options(max_retries=2).chat.completions.create(**body)
    assert len(waited) == 2
    assert seconds is None or waited == [seconds] * 2
    failing(site, monkeypatch, error)
    with pytest.raises(kind):
        site.openai.chat.completions.create(**body)


@pytest.mark.parametrize("stream", [False, True])
def test_what_never_works_is_not_tried_again(
    site: Any, monkeypatch: pytest.MonkeyPatch, waited: list[float], stream: bool
) -> None:
    patient = site.openai.with_options(max_retries=3)
    failing(site, monkeypatch, RequestRejected("no", code="quota"))
    with pytest.raises(openai.RateLimitError) as caught:
        patient.completions.create(prompt=TEXT, stream=stream, **GREEDY)
    assert caught.value.code == "quota"
    with pytest.raises(openai.BadRequestError):
        patient.completions.create(prompt=TEXT, stream=stream, **{**GREEDY, "temperature": -1})
    assert waited == []


def test_a_defect_of_the_server_has_a_class_too(
    site: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing(site, monkeypatch, ZeroDivisionError("secret"))
    with pytest.raises(openai.InternalServerError) as caught:
        site.openai.completions.create(prompt=TEXT, **GREEDY)
    assert (caught.value.status_code, caught.value.code) == (500, "internal_error")
    assert "secret" not in str(caught.value)
    assert "a request failed" in caplog.text


def test_raw_headers(site: Any) -> None:
    head = {"x-request-id": "mine-7"}
    raw = site.openai.completions.with_raw_response.create(
        prompt=TEXT, extra_headers=head, **GREEDY
    )
    assert (raw.headers["x-request-id"], raw.request_id) == ("mine-7", "mine-7")
    with site.openai.completions.with_streaming_response.create(
        prompt=TEXT, stream=True, extra_headers=head, **GREEDY
    ) as streamed:
        assert streamed.headers["x-request-id"] == "mine-7"
        assert len(list(streamed.parse())) > 1
