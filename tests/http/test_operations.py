"""Keys, identities, health, metrics, the decision log, and what unknown fields do."""

from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from jackfield import __version__
from jackfield.core.api import EngineStoppedError, RequestContext, RequestRejected
from jackfield.server.http.problem import problem_of
from jackfield.server.http.settings import HttpSettings

KEYS = {"one": RequestContext(tenant="a", priority=5), "two": RequestContext(tenant="b")}


def test_keys(folder: Path, serve: Any) -> None:
    settings = HttpSettings(api_keys=KEYS, model_names=("first", "second"), strict=True)
    with serve(folder, settings) as site:
        seen = []
        follow = site.llm.follow

        def watched(*given: Any, **more: Any) -> Any:
            seen.append(more["context"])
            return follow(*given, **more)

        site.llm.follow = watched
        for path in ("/health", "/version", "/ready"):
            assert site.http.get(path).status_code == 200
        for path in ("/metrics", "/v1/models", "/nothing", "/debug/requests/x", "/openapi.json"):
            found = site.http.get(path)
            assert found.status_code == 401
            assert found.json()["error"]["code"] == "invalid_api_key"
            assert found.headers["www-authenticate"] == "Bearer"
        for key in ("", "three", "one ", "\u00e9"):
            head = {"authorization": f"Bearer {key}x".encode()}
            assert site.http.get("/v1/models", headers=head).status_code == 401
        with pytest.raises(openai.AuthenticationError):
            site.openai.models.list()
        client = OpenAI(base_url=f"{site.url}/v1", api_key="one", max_retries=0)
        assert [card.id for card in client.models.list()] == ["first", "second"]
        for priority in (1, 9):
            body = {"priority": priority, "tenant": "b"}
            with pytest.raises(openai.BadRequestError) as caught:
                client.completions.create(model="first", prompt="x", extra_body=body)
            assert caught.value.param == "tenant"
            made = client.completions.create(
                model="second", prompt="x", max_tokens=1, extra_body={"priority": priority}
            )
            assert made.model == "second"
        assert [(one.tenant, one.priority) for one in seen] == [("a", 5), ("a", 9)]
        client.close()


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


def test_metrics_have_few_labels(site: Any) -> None:
    before = len(site.http.get("/metrics").text.splitlines())
    for place in range(50):
        site.http.get(f"/made/up/{place}")
        site.http.get(f"/v1/models/{place}")
        site.http.get(f"/debug/requests/{place}")
        site.http.request(f"VERB{place}", "/health")
        site.post("/v1/completions", prompt="x", model=f"m{place}", user=f"u{place}")
    text = site.http.get("/metrics").text
    assert len(text.splitlines()) < before + 40
    assert 'path="/made' not in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert all(name.startswith("jackfield_") for name in names)
    assert "jackfield_engine_up 1.0" in text


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
