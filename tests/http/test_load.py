"""`jackfield bench serve` against servers: good ones, and ones that fail."""

import json
from typing import Any

import pytest

from jackfield.core.api import ConfigError, EngineStoppedError
from jackfield.server.cli import main
from jackfield.server.load.connection import Target
from jackfield.server.load.exchange import Exchange
from jackfield.server.load.streamed_answer import StreamedAnswer

SMALL = ("--workload=tokens", "--requests=6", "--input-tokens=5", "--output-tokens=7",
         "--largest-id=60")  # fmt: skip


def run(url: str, *options: str) -> int:
    return main(["bench", "serve", f"--url={url}", *SMALL, *options])


def test_all_requests_are_answered(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(site.url, "--streams=2", "--repeat=2", "--watch-health", "--json") == 0
    runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(runs) == 2
    for result in runs:
        assert (result["requests"], result["failed"], result["streams"]) == (6, 0, 2)
        assert (result["prompt_tokens"], result["output_tokens"]) == (30, 42)
        assert result["health_ms_p99"] is not None
        assert 0 < result["first_token_ms_p50"] <= result["answer_ms_p99"]


def test_the_table_names_what_failed(site: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(site.url, "--model=nobody", "--repeat=1") == 1
    shown = capsys.readouterr().out
    assert "failed      6 times: status 404: The model 'nobody' does not exist" in shown
    assert "6 requests, 6 at once, 30 tokens in, 0 out" in shown


def test_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9") == EngineStoppedError.exit_code
    assert "no server answers at 127.0.0.1 port 9" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://"])
def test_a_bad_url(url: str) -> None:
    with pytest.raises(ConfigError, match="should look like"):
        Target.of(url, {})


def exchange(*bodies: bytes, status: int = 200, whole: bool = True) -> Exchange:
    pieces = [(1.0 + place, body) for place, body in enumerate(bodies)]
    return Exchange(0.5, status, pieces, 9.5, whole)


def event(**fields: Any) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()


PIECE = event(choices=[{"text": "a"}])
USAGE = event(choices=[], usage={"completion_tokens": 2})
END = b"data: [DONE]\n\n"


def test_times_of_a_stream_that_is_cut_anywhere() -> None:
    body = PIECE + event(choices=[{"delta": {"content": "b"}}])
    answer = StreamedAnswer.of(exchange(PIECE, body[:-9], body[-9:] + USAGE + END), 2)
    assert answer == StreamedAnswer(9.0, 0.5, [1.0, 1.0], 2, None)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (exchange(PIECE, USAGE), "the stream ended without [DONE]"),
        (exchange(PIECE, USAGE + END, whole=False), "the stream ended without [DONE]"),
        (exchange(PIECE, USAGE + END), "2 tokens instead of 3"),
        (exchange(PIECE, event(error={"message": "it broke"}) + END), "error event: it broke"),
        (exchange(status=0, whole=False), "the connection ended without a response"),
        (exchange(b"oops", status=502), "status 502: oops"),
    ],
)
def test_what_is_wrong_is_told(found: Exchange, problem: str) -> None:
    assert StreamedAnswer.of(found, 3).problem == problem
