"""What one streamed answer says about the server."""

import json
from itertools import pairwise
from typing import Any, NamedTuple, Self

from jackfield.server.load.exchange import Exchange

DONE = b"[DONE]"
START = b"data: "


class StreamedAnswer(NamedTuple):
    """Seconds since the request was sent. first: of the first piece of text. gaps: between pieces.

    problem: why it is no whole answer; None if it is one.
    """

    seconds: float
    first: float | None
    gaps: list[float]
    tokens: int
    problem: str | None

    @classmethod
    def of(cls, exchange: Exchange, wanted: int) -> Self:
        """Read a stream with usage. wanted: how many tokens it should have."""
        seconds = exchange.ended - exchange.started
        if exchange.status != 200:
            return cls(seconds, None, [], 0, _refusal(exchange))
        times, tokens, end = _read(exchange)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        first = times[0] - exchange.started if times else None
        if end is None and tokens != wanted:
            end = f"{tokens} tokens instead of {wanted}"
        return cls(seconds, first, gaps, tokens, end)


def _refusal(exchange: Exchange) -> str:
    if exchange.status == 0:
        return "the connection ended without a response"
    try:
        message = json.loads(exchange.body())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = exchange.body()[:200].decode("utf-8", "replace")
    return f"status {exchange.status}: {message}"


def _read(exchange: Exchange) -> tuple[list[float], int, str | None]:
    """When pieces with text came, the counted tokens, and what is wrong with the end."""
    times: list[float] = []
    tokens, done, rest = 0, False, b""
    for moment, data in exchange.pieces:
        *events, rest = (rest + data).split(b"\n\n")
        found = [event.removeprefix(START) for event in events if event.startswith(START)]
        done = done or DONE in found
        documents = [json.loads(event) for event in found if event != DONE]
        for document in documents:
            if "error" in document:
                return times, tokens, f"error event: {document['error'].get('message')}"
            tokens = (document.get("usage") or {}).get("completion_tokens", tokens)
        if any(_has_text(document) for document in documents):
            times.append(moment)
    return times, tokens, None if done and exchange.whole else "the stream ended without [DONE]"


def _has_text(document: dict[str, Any]) -> bool:
    choices = document.get("choices") or ()
    return any(one.get("text") or one.get("delta", {}).get("content") for one in choices)
