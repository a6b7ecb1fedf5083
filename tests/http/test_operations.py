"""Health, metrics, the decision log, and what unknown fields do."""

from pathlib import Path
from typing import Any

import pytest

from jackfield import __version__
from jackfield.core.api import EngineStoppedError, RequestRejected
from jackfield.server.http.problem import problem_of


def test_ids_of_requests(site: Any) -> None:
    given = {"x-request-id": "mine-1"}
    assert site.http.get("/version", headers=given).headers["x-request-id"] == "mine-1"
    for bad in ("a b", "x" * 200, "a\u00e9"):
        found = site.http.get("/version", headers={"x-request-id": bad.encode()})
        assert found.headers["x-request-id"].startswith("req-")
    assert site.http.get("/version").json() == {"version": __version__}


def test_unknown_fields_are_named(site: Any) -> None:
    body = {"prompt": "x", "max_tokens": 1, "best": 1, "none": None, "s\n\u00e9": 1}
    options = {"stream": True, "stream_options": {"include_obfuscation": False}}
    found = site.post("/v1/completions", **body, **options)
    names = found.headers["x-jackfield-ignored-fields"]
    assert names == "best, s??, stream_options.include_obfuscation"
    plain = site.post("/v1/completions", prompt="x", max_tokens=1)
    assert "x-jackfield-ignored-fields" not in plain.headers


def test_why_a_request_took_its_time(site: Any) -> None:
    name = site.post("/v1/completions", prompt="x", max_tokens=2).json()["id"]
    found = site.http.get(f"/debug/requests/{name}").json()
    assert found["id"] == name
    actions = [decision["action"] for decision in found["decisions"]]
    assert (actions[0], actions[-1]) == ("arrive", "finish")
    unknown = site.http.get("/debug/requests/none")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "request_not_found")


def test_every_reference_of_the_schema_resolves(site: Any) -> None:
    document = site.http.get("/openapi.json").json()
    known = document["components"]["schemas"]

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [one for inner in value.values() for one in references(inner)]
        return [r for inner in value for r in references(inner)] if isinstance(value, list) else []

    found = references(document)
    assert {"ChatRequest", "CompletionRequest", "Error"} <= {one.split("/")[-1] for one in found}
    assert [one for one in found if one.split("/")[-1] not in known] == []


def test_a_policy_that_refuses_says_when_to_come_back() -> None:
    soon = problem_of(RequestRejected("busy", code="queue_full", retry_after=1.2)).response()
    assert (soon.status_code, soon.headers["retry-after"]) == (429, "2")
    assert "x-should-retry" not in soon.headers
    never = problem_of(RequestRejected("no", code="quota")).response()
    assert never.headers["x-should-retry"] == "false"
    assert problem_of(EngineStoppedError("dead")).status == 503
    hidden = problem_of(ZeroDivisionError("secret"))
    assert (hidden.status, "secret" in hidden.message) == (500, False)


def test_a_dead_engine_is_told_to_everybody(
    folder: Path, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream ends with an error event, and the server with the exit code of the engine."""
    with serve(folder) as site:
        body = {"prompt": "x", "max_tokens": 200, "ignore_eos": True, "stream": True}
        with site.http.stream("POST", "/v1/completions", json=body) as found:
            lines = found.iter_lines()
            next(lines)

            def step() -> None:
                raise MemoryError("no room")

            monkeypatch.setattr(site.llm.assembly.engine, "step", step)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert "the engine died: MemoryError: no room" in rest[-2]
        site.until(lambda: site.server.exit_code == 6)
