"""Who asks: open and closed routes, stacks, faults, and what a body cannot claim."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from jackfield.core.api import Caller, RequestContext, RequestError, RequestRejected, Trust
from jackfield.server.http.identity import Identity
from jackfield.server.http.owners import Owners
from jackfield.server.http.settings import HttpSettings

A = RequestContext("a", "gold", 5, None, {"team": "x"}, Trust.USER)
B = RequestContext("b", trust=Trust.USER)
BOSS = RequestContext(trust=Trust.OPERATOR)
KEYS = {"one": A, "two": B, "boss": BOSS}
ONE_TOKEN = {"prompt": "x", "max_tokens": 1}


def table(caller: Caller) -> RequestContext | None:
    return KEYS.get(caller.key or "")


@pytest.fixture(scope="module")
def locked(folder: Path, serve: Any) -> Iterator[Any]:
    settings = HttpSettings(
        identify=[("table", table)], needs_key=True, model_names=("first", "second"), strict=True
    )
    with serve(folder, settings) as site:
        yield site


def ask(site: Any, key: str, path: str = "/v1/completions", **body: Any) -> httpx.Response:
    head = {"authorization": f"Bearer {key}"}
    found: httpx.Response = site.http.post(path, json={**ONE_TOKEN, **body}, headers=head)
    return found


def test_open_and_closed_routes(locked: Any) -> None:
    for path in ("/live", "/health", "/version", "/ready"):
        assert locked.http.get(path).status_code == 200
    for path in ("/metrics", "/v1/models", "/nothing", "/debug/requests/x", "/openapi.json"):
        found = locked.http.get(path)
        assert found.status_code == 401
        assert found.json()["error"]["code"] == "invalid_api_key"
        assert found.json()["error"]["type"] == "invalid_request_error"
        assert found.headers["www-authenticate"] == "Bearer"
        assert locked.http.get(path, headers={"authorization": "Bearer two"}).status_code != 401
    for key in ("", "three", "one ", "\u00e9"):
        head = {"authorization": f"Bearer {key}x".encode()}
        assert locked.http.get("/v1/models", headers=head).status_code == 401
    for credential in ("one", "Basic one", "Bearer", "Bearer two, Bearer one"):
        head = {"authorization": credential}
        assert locked.http.get("/v1/models", headers=head).status_code == 401
    twice = [("authorization", "Bearer one"), ("authorization", "Bearer two")]
    assert locked.http.get("/v1/models", headers=twice).status_code == 401
    assert locked.http.get("/v1/models", headers={"authorization": "bEARER  one"}).is_success


def test_a_client_with_a_key(locked: Any) -> None:
    with pytest.raises(openai.AuthenticationError):
        locked.openai.models.list()
    with OpenAI(base_url=f"{locked.url}/v1", api_key="one", max_retries=0) as client:
        assert [card.id for card in client.models.list()] == ["first", "second"]
        made = client.completions.create(model="second", prompt="x", max_tokens=1)
        assert made.model == "second"


def test_a_body_claims_nothing(locked: Any) -> None:
    for field in ("tenant", "tier", "trust", "labels", "deadline"):
        refused = ask(locked, "one", **{field: "b"})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
    with locked.watched() as seen:
        for key, priority in [("one", 1), ("one", 9), ("two", -4), ("boss", -4), ("boss", 2)]:
            assert ask(locked, key, priority=priority).is_success
    assert [one.priority for one in seen] == [5, 9, 0, -4, 2]
    assert [one.tenant for one in seen] == ["a", "a", "b", "default", "default"]


def test_without_keys_any_priority_may_be_asked_for(site: Any) -> None:
    with site.watched() as seen:
        assert ask(site, "any", priority=-7, user="u" * 200).is_success
    assert seen == [RequestContext(priority=-7, labels={"user": "u" * 128})]


def test_the_user_of_a_body_is_a_label_unless_there_is_one(locked: Any) -> None:
    talk = [{"role": "user", "content": "x"}]
    with locked.watched() as seen:
        ask(locked, "one", user="me")
        head = {"authorization": "Bearer one"}
        chat = {"messages": talk, "max_tokens": 1, "user": "you"}
        locked.http.post("/v1/chat/completions", json=chat, headers=head)
        ask(locked, "one", user="")
        KEYS["named"] = A._replace(labels={"user": "fixed"})
        ask(locked, "named", user="me")
    del KEYS["named"]
    assert [dict(one.labels) for one in seen] == [
        {"team": "x", "user": "me"}, {"team": "x", "user": "you"}, {"team": "x"}, {"user": "fixed"}
    ]  # fmt: skip


def test_reasons_are_told_to_their_tenant_and_to_operators(locked: Any) -> None:
    def looks(key: str, name: str) -> int:
        path = f"/debug/requests/{name}"
        found = locked.http.get(path, headers={"authorization": f"Bearer {key}"})
        return int(found.status_code)

    name = ask(locked, "one").json()["id"]
    assert [looks(key, name) for key in ("one", "two", "boss")] == [200, 404, 200]
    many = ask(locked, "two", prompt=["x", "y"]).json()["id"]
    for place in range(2):
        assert [looks(key, f"{many}-{place}") for key in ("one", "two")] == [404, 200]
    for key in ("one", "two"):
        assert ask(locked, key, request_id="shared").is_success
    assert [looks(key, "shared") for key in ("one", "two", "boss")] == [404, 404, 200]


def test_owners_are_bounded() -> None:
    owners = Owners(kept=2)
    for name in ("x", "y", "x", "z"):
        owners.note(name, A)
    assert [owners.may_see(name, A) for name in "xyz"] == [True, False, True]
    assert [owners.may_see(name, B) for name in "xyz"] == [False] * 3
    assert owners.may_see("x", BOSS)


def test_a_plugin_is_asked_once_a_request_before_the_body(folder: Path, serve: Any) -> None:
    asked: list[Caller] = []

    def keep(caller: Caller) -> RequestContext:
        asked.append(caller)
        return RequestContext(deadline=caller.now + 60)

    with serve(folder, HttpSettings(identify=[("keep", keep)])) as site, site.watched() as seen:
        before = time.monotonic()
        head = {"X-Team": "t", "Authorization": "Bearer \u00fc".encode()}
        assert site.http.post("/v1/completions", content=b"{", headers=head).status_code == 415
        assert site.http.get("/health").is_success
        assert ask(site, "k", n=2).is_success
    first, second = asked
    assert (first.key, first.path, first.peer) == ("\u00fc", "/v1/completions", "127.0.0.1")
    assert first.headers["x-team"] == "t"
    assert before <= first.now <= second.now <= time.monotonic()
    assert [one.deadline for one in seen] == [second.now + 60]
    assert "\u00fc" not in repr(first) and "key=***" in repr(first)


def asked(*answers: Any) -> tuple[Identity, list[int]]:
    """Plugins that answer so; an exception is raised. And which of them were asked."""
    calls: list[int] = []

    def plugin(place: int) -> Callable[[Caller], Any]:
        def identify(caller: Caller) -> Any:
            calls.append(place)
            if isinstance(answers[place], Exception):
                raise answers[place]
            return answers[place]

        return identify

    return Identity([(f"p{place}", plugin(place)) for place in range(len(answers))]), calls


@pytest.mark.parametrize(
    ("answers", "found", "calls"),
    [
        ((A, B), A, [0]),
        ((None, B, A), B, [0, 1]),
        ((None, None), None, [0, 1]),
        ((), None, []),
        ((KeyError("secret"), B), B, [0, 1]),
        ((ZeroDivisionError(),), None, [0]),
    ],
)
def test_the_first_that_knows_decides(answers: Any, found: Any, calls: list[int]) -> None:
    identity, order = asked(*answers)
    assert identity.who(Caller("k")) == found
    assert order == calls


class Odd(Mapping[str, str]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> str:
        raise OSError

    def __iter__(self) -> Iterator[str]:
        raise OSError

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "wrong",
    [
        True, "a", ("a", "gold", 0, None, {}, Trust.USER), {"tenant": "a"}, RequestContext,
        A._replace(tenant=5), A._replace(tenant="a\n"), A._replace(tier=None),
        A._replace(priority=True), A._replace(priority=2**40), A._replace(priority=1.5),
        A._replace(deadline=float("nan")), A._replace(deadline="5"), A._replace(labels=None),
        A._replace(labels={"a": 1}), A._replace(labels=Odd()), A._replace(trust="operator"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_a_fault_and_nobody_is_let_in(wrong: Any) -> None:
    identity, _ = asked(wrong)
    assert identity.who(Caller("k")) is None
    assert identity.faults == {"p0": 1}


def test_faults_are_counted_and_told_once_without_the_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known: dict[str, RequestContext] = {}
    identity = Identity([("careless", lambda caller: known[caller.key or ""]), ("table", table)])
    with caplog.at_level(logging.WARNING):
        for key in ("one", "secret-a", "secret-b"):
            assert identity.who(Caller(key)) == KEYS.get(key)
    assert identity.faults == {"careless": 3, "table": 0}
    (told,) = [record.getMessage() for record in caplog.records]
    assert "plugin careless: identify raised KeyError at " in told
    assert "secret" not in told


def test_labels_cannot_be_changed_later() -> None:
    labels = {"a": "b"}
    identity, _ = asked(A._replace(labels=labels))
    found = identity.who(Caller())
    labels["a"] = "c"
    assert found is not None and found.labels == {"a": "b"}
    with pytest.raises(TypeError):
        found.labels["a"] = "d"  # type: ignore[index]


def test_a_refusal_is_told_to_the_client(folder: Path, serve: Any) -> None:
    def refuse(caller: Caller) -> RequestContext:
        if caller.key == "later":
            raise RequestRejected("come back later", code="over_quota", retry_after=2.5)
        raise RequestError("this address is not welcome", code="blocked")

    with serve(folder, HttpSettings(identify=[("strict", refuse), ("table", table)])) as site:
        later = ask(site, "later")
        assert (later.status_code, later.headers["retry-after"]) == (429, "3")
        assert later.json()["error"]["code"] == "over_quota"
        never = ask(site, "one")
        assert (never.status_code, never.json()["error"]["code"]) == (400, "blocked")


def test_a_plugin_that_fails_lets_nobody_in_and_harms_nobody(folder: Path, serve: Any) -> None:
    def fail(caller: Caller) -> Any:
        raise SystemError(caller.key) if caller.key == "bad" else LookupError

    settings = HttpSettings(identify=[("fails", fail), ("table", table)])
    with serve(folder, settings) as site:
        for key in ("bad", "other"):
            assert ask(site, key).status_code == 401
        assert ask(site, "boss").is_success
        assert site.http.get("/health").is_success
        text = site.http.get("/metrics", headers={"authorization": "Bearer two"}).text
    assert 'jackfield_identify_faults_total{plugin="fails"} 4.0' in text
    assert 'jackfield_identify_faults_total{plugin="table"} 0.0' in text
