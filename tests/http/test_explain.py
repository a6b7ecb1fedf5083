"""Who is in the engine, over HTTP and on the command line; tiers, gateways and timing."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import Trust
from jackfield.plugins.server.keys import Keys, KeysConfig
from jackfield.server.cli import main
from jackfield.server.http.settings import HttpSettings

LONG = {"prompt": "x", "max_tokens": 180, "ignore_eos": True, "temperature": 0}
ENTRIES = {
    "alice": {"key": "a", "tier": "silver", "tiers": ["batch"]},
    "bob": {"key": "b"},
    "gate": {"key": "g", "may_act_for": ["*"]},
    "boss": {"key": "o", "trust": "operator"},
}
TALK = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JACKFIELD_API_KEY", raising=False)


@pytest.fixture(scope="module")
def locked(folder: Path, serve: Any) -> Iterator[Any]:
    """One seat, four callers, two service tiers."""
    plugin = Keys(KeysConfig.model_validate({"entries": ENTRIES}))
    settings = HttpSettings(
        identify=[("keys", plugin.identify)], needs_key=True,
        service_tiers={"flex": "batch", "priority": "gold"},
    )  # fmt: skip
    with serve(folder, settings, max_num_seqs=1, **{"engine.starvation_share": 0.0}) as site:
        yield site


def head(key: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} | {
        f"x-jackfield-{name}": value for name, value in more.items()
    }


@contextmanager
def busy(site: Any, *keys: str) -> Iterator[list[str]]:
    """One long answer under way per key, in this order; gives their ids. The first one runs."""
    engine = site.llm.assembly.engine
    step, may_step = engine.step, threading.Event()

    def slowly() -> Any:
        may_step.wait(0.03)
        return step()

    engine.step = slowly
    names = [f"{place}-{key}" for place, key in enumerate(keys)]
    threads = []
    for name, key in zip(names, keys, strict=True):
        body = {**LONG, "request_id": name}
        ask = {"json": body, "headers": head(key)}
        thread = threading.Thread(target=site.http.post, args=("/v1/completions",), kwargs=ask)
        thread.start()
        threads.append(thread)
        site.until(lambda name=name: name in engine._requests)
    site.until(lambda: engine.lifecycle.planner.running)
    try:
        yield names
    finally:
        may_step.set()
        for name in names:
            engine_abort(site, name)
        for thread in threads:
            thread.join(20)
        engine.step = step
        site.until(lambda: not engine.has_work)


def engine_abort(site: Any, name: str) -> None:
    site.llm._thread.abort(name)


def listed(site: Any, key: str, query: str = "") -> Any:
    found = site.http.get(f"/debug/requests{query}", headers=head(key))
    return found.json()


def test_the_list_tells_who_runs_and_who_waits_for_what(locked: Any) -> None:
    with busy(locked, "a", "b", "a") as (first, second, third):
        locked.until(lambda: listed(locked, "o")["counts"]["waiting"] == 2)
        locked.until(lambda: listed(locked, "o", "?state=waiting")["requests"][0]["code"] != "next")
        found = listed(locked, "o")
        assert (found["counts"], found["free_seats"]) == (
            {"running": 1, "waiting": 2, "parked": 0}, 0
        )  # fmt: skip
        told = [
            (one["id"], one["tenant"], one["state"], one["position"], one["code"])
            for one in found["requests"]
        ]
        assert told == [
            (first, "alice", "running", None, "order"),
            (second, "bob", "waiting", 1, "no_seat"),
            (third, "alice", "waiting", 2, "behind"),
        ]
        assert found["requests"][0]["tier"] == "silver"
        own = listed(locked, "a")
        assert [one["id"] for one in own["requests"]] == [first, third]
        assert own["counts"] == {"running": 1, "waiting": 1, "parked": 0}
        assert [one["id"] for one in listed(locked, "a", "?state=waiting")["requests"]] == [third]
        assert [one["id"] for one in listed(locked, "o", "?limit=1")["requests"]] == [first]
        assert [one["id"] for one in listed(locked, "o", "?tenant=bob")["requests"]] == [second]
    assert listed(locked, "o")["requests"] == []


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [("?limit=0", 400, "limit"), ("?limit=1001", 400, "limit"), ("?limit=x", 400, "limit"),
     ("?state=gone", 400, "state"), ("?tenant=bob", 403, "tenant")],
)  # fmt: skip
def test_what_the_list_does_not_take(locked: Any, query: str, status: int, param: str) -> None:
    found = locked.http.get(f"/debug/requests{query}", headers=head("a"))
    assert (found.status_code, found.json()["error"]["param"]) == (status, param)


def test_without_a_key_nothing_is_listed(locked: Any) -> None:
    assert locked.http.get("/debug/requests").status_code == 401


def test_the_life_of_a_request_that_is_not_over(locked: Any) -> None:
    with busy(locked, "a", "b") as (_, second):
        path = f"/debug/requests/{second}"

        def told(key: str = "b") -> Any:
            return locked.http.get(path, headers=head(key)).json()

        locked.until(lambda: told()["summary"]["answers"][0]["timeline"][-1]["code"] == "no_seat")
        (answer,) = told()["summary"]["answers"]
        assert (answer["state"], answer["now"]["position"]) == ("waiting", 1)
        assert answer["seconds"]["waiting"] > 0 == answer["seconds"]["running"]
        assert [stage["action"] for stage in answer["timeline"]] == ["arrive", "wait"]
        assert answer["timeline"][-1]["reason"] == "no free seat: all 1 are taken"
        assert locked.http.get(path, headers=head("a")).status_code == 404


def test_the_life_of_a_request_that_is_over(site: Any) -> None:
    name = site.post("/v1/completions", prompt="x", max_tokens=2, n=2).json()["id"]
    found = site.http.get(f"/debug/requests/{name}").json()
    assert {"code", "reason", "plugin", "action"} <= found["decisions"][0].keys()
    answers = found["summary"]["answers"]
    assert [one["answer"] for one in answers] == [0, 1]
    for one in answers:
        states = [stage["state"] for stage in one["timeline"]]
        assert (states[0], states[-2:], one["state"]) == (
            "waiting", ["running", "finished"], "finished"
        )  # fmt: skip
        assert one["now"] is None and one["seconds"]["running"] > 0
        starts = [stage["start"] for stage in one["timeline"]]
        assert starts == sorted(starts)
        total = sum(stage["seconds"] or 0 for stage in one["timeline"])
        assert total == pytest.approx(starts[-1])


def test_whole_answers_tell_where_their_time_went(site: Any) -> None:
    found = site.post("/v1/completions", prompt=["x", "y"], max_tokens=3)
    parts = dict(part.split(";dur=") for part in found.headers["server-timing"].split(", "))
    assert list(parts) == ["queue", "prefill", "decode", "total"]
    spent = {name: float(value) for name, value in parts.items()}
    assert 0 < spent["prefill"] <= spent["total"]
    in_phases = spent["queue"] + spent["prefill"] + spent["decode"]
    assert in_phases <= spent["total"] + 0.01
    streamed = site.post("/v1/completions", prompt="x", max_tokens=1, stream=True)
    assert "server-timing" not in streamed.headers


def test_decisions_are_counted(site: Any) -> None:
    site.post("/v1/completions", prompt="x", max_tokens=2)
    text = site.http.get("/metrics").text
    assert 'jackfield_decisions_total{action="finish",plugin="core"}' in text
    assert 'jackfield_decisions_total{action="admit",plugin="priority+fcfs"}' in text
    assert "jackfield_valve_admissions_total " in text
    assert "jackfield_class_overflows_total 0.0" in text
    assert "# TYPE jackfield_displacements_total counter" in text


@pytest.mark.parametrize(
    ("key", "wanted", "tier", "shown", "ignored"),
    [("a", "flex", "batch", "flex", None), ("a", "priority", "silver", "default", "service_tier"),
     ("a", "auto", "silver", "default", None), ("o", "priority", "gold", "priority", None)],
)  # fmt: skip
def test_service_tiers_are_tiers(
    locked: Any, key: str, wanted: str, tier: str, shown: str, ignored: str | None
) -> None:
    body = {"messages": TALK, "max_tokens": 1, "service_tier": wanted}
    with locked.watched() as seen:
        found = locked.http.post("/v1/chat/completions", json=body, headers=head(key))
    assert [one.tier for one in seen] == [tier]
    assert found.json()["service_tier"] == shown
    assert found.headers.get("x-jackfield-ignored-fields") == ignored


def test_only_a_gateway_passes_tenants_on(locked: Any) -> None:
    body = {"prompt": "x", "max_tokens": 1, "unknown": 1}
    said = {"tenant": "t", "priority": "4"}
    with locked.watched() as seen:
        believed = locked.http.post("/v1/completions", json=body, headers=head("g", **said))
        own = locked.http.post("/v1/completions", json=body, headers=head("o", **said))
    assert [(one.tenant, one.priority, one.trust) for one in seen] == [
        ("t", 4, Trust.USER), ("boss", 0, Trust.OPERATOR)
    ]  # fmt: skip
    told = "x-jackfield-ignored-fields"
    assert believed.headers[told] == "unknown"
    assert own.headers[told] == "unknown, x-jackfield-tenant, x-jackfield-priority"
    wrong = locked.http.post("/v1/completions", json=body, headers=head("g", priority="high"))
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "x-jackfield-priority")


def test_the_command_lists_and_explains(
    locked: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_API_KEY", "o")
    with busy(locked, "a", "b") as (first, second):
        locked.until(lambda: listed(locked, "o")["counts"]["waiting"] == 1)
        assert main(["explain", "--url", locked.url]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("1 running, 1 waiting, 0 parked; free: 0 seats")
        assert lines[1].split()[:4] == ["ID", "TENANT", "STATE", "FOR"]
        assert [line.split()[:3] for line in lines[2:]] == [
            [first, "alice", "running"], [second, "bob", "waiting"]
        ]  # fmt: skip
        assert main(["explain", "--url", f"{locked.url}/v1", "--limit=1"]) == 0
        assert "and 1 more" in capsys.readouterr().out
        assert main(["explain", second, "--url", locked.url]) == 0
        told = capsys.readouterr().out
        assert told.startswith(f"{second}: waiting after ") and "now: waiting for" in told
    assert main(["explain", first, "--url", locked.url]) == 0
    assert "abort" in capsys.readouterr().out
    assert main(["explain", first, "--json", "--url", locked.url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["answers"][0]["state"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "key", "code", "message"),
    [(["explain", "none"], "o", 2, "Nothing is known of a request 'none'"),
     (["explain", "a/b?c"], "o", 2, "Nothing is known of a request 'a/b?c'"),
     (["explain"], "wrong", 2, "wants a key; set JACKFIELD_API_KEY"),
     (["explain", "--state", "gone"], "o", 2, "must be one of running, waiting, parked"),
     (["explain", "x", "--state", "waiting"], "o", 2, "--state is for the list")],
)  # fmt: skip
def test_the_command_says_what_to_do(
    locked: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    key: str,
    code: int,
    message: str,
) -> None:
    monkeypatch.setenv("JACKFIELD_API_KEY", key)
    assert main([*arguments, "--url", locked.url]) == code
    assert message in capsys.readouterr().err


def test_no_server_and_no_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--url", "http://127.0.0.1:9"]) == 6
    assert "no server answers at http://127.0.0.1:9" in capsys.readouterr().err
    for url in ("localhost:8000", "ftp://x", ""):
        assert main(["explain", "--url", url]) == 2
        assert "should look like http://127.0.0.1:8000" in capsys.readouterr().err


def test_another_server_is_not_taken_for_one(
    site: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--url", f"{site.url}/metrics?x="]) == 2
    assert "is no Jackfield server" in capsys.readouterr().err


def test_an_id_that_was_used_again_has_its_last_life(site: Any) -> None:
    for tokens in (3, 1):
        site.post("/v1/completions", prompt="x", max_tokens=tokens, request_id="again")
    found = site.http.get("/debug/requests/again").json()
    actions = [one["action"] for one in found["decisions"]]
    assert actions.count("arrive") == actions.count("finish") == 2
    (answer,) = found["summary"]["answers"]
    stages = [stage["action"] for stage in answer["timeline"]]
    assert (stages[0], stages.count("arrive"), stages[-1]) == ("arrive", 1, "finish")


def test_the_key_goes_nowhere_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_API_KEY", "secret")
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("location", "/stolen")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert main(["explain", "x", "--url", f"http://127.0.0.1:{server.server_port}"]) == 2
        thread.join()
    assert asked == ["/debug/requests/x"]
    assert "is no Jackfield server (status 302)" in capsys.readouterr().err
