"""Asks a server, and keeps what it says as plain data."""

import json
from collections.abc import Iterable
from typing import Any

import httpx
from cases import Case

Answer = dict[str, Any]
"""status; and `frames` (a stream: documents, and "[DONE]") or `body` (JSON, or text)."""


def ask_all(base_url: str, cases: Iterable[Case]) -> dict[str, Answer]:
    """Every case, one after the other: what is computed together could round differently."""
    with httpx.Client(base_url=base_url, timeout=120) as client:
        return {case["name"]: ask(client, case) for case in cases}


def ask(client: httpx.Client, case: Case) -> Answer:
    """One case. A connection that breaks is an answer too."""
    try:
        response = client.request(case["method"], case["path"], json=case["body"])
    except httpx.HTTPError as error:
        return {"status": 0, "body": f"{type(error).__name__}: {error}"}
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return {"status": response.status_code, "frames": _frames(response.text)}
    try:
        return {"status": response.status_code, "body": response.json()}
    except ValueError:
        return {"status": response.status_code, "body": response.text}


def _frames(text: str) -> list[Any]:
    lines = [line for line in text.split("\n") if line and not line.startswith(":")]
    data = [line.removeprefix("data: ") for line in lines]
    return [one if one == "[DONE]" else json.loads(one) for one in data]
