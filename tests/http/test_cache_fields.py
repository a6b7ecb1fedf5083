"""What bodies ask of the cache, and who may make it forget."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import NO_HINTS, CacheHints, RequestContext, Trust
from jackfield.core.api.cache_hints import MAX_SALT, checked_hints
from jackfield.plugins.server.keys import Keys, KeysConfig
from jackfield.server.http.cache_fields import CacheFields, salted
from jackfield.server.http.identity import WrongAnswer, checked
from jackfield.server.http.settings import HttpSettings

TALK = [{"role": "user", "content": "hi"}]
BODIES = {"/v1/completions": {"prompt": "x"}, "/v1/chat/completions": {"messages": TALK}}
RESET = "/reset_prefix_cache"


def send(site: Any, path: str, **more: Any) -> Any:
    return site.post(path, **{**BODIES[path], "max_tokens": 1, **more})


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("given", "hints"),
    [
        ({}, NO_HINTS),
        ({"cache": None, "cache_salt": None}, NO_HINTS),
        ({"cache": {}}, NO_HINTS),
        ({"cache": {"ttl": 5, "pin": True}}, CacheHints(5, True)),
        ({"cache": {"ttl": 0.5, "pin": None, "shared_prefix_tokens": 64}},
         CacheHints(0.5, shared_prefix_tokens=64)),
        ({"cache": {"ttl": None, "shared_prefix_tokens": 0.0}}, CacheHints(shared_prefix_tokens=0)),
        ({"cache": {"ttl": 1e9}, "cache_salt": "s" * MAX_SALT}, CacheHints(1e9, salt="s" * 256)),
    ],
)  # fmt: skip
def test_fields_are_hints(site: Any, path: str, given: dict[str, Any], hints: CacheHints) -> None:
    with site.watched() as seen:
        found = send(site, path, **given)
    assert found.status_code == 200, found.text
    assert "x-jackfield-ignored-fields" not in found.headers
    assert [context.cache for context in seen] == [hints]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"cache": {"ttl": 0}}, "cache.ttl"), ({"cache": {"ttl": -1}}, "cache.ttl"),
        ({"cache": {"ttl": 1.1e9}}, "cache.ttl"), ({"cache": {"ttl": "5"}}, "cache.ttl"),
        ({"cache": {"ttl": True}}, "cache.ttl"), ({"cache": {"pin": 1}}, "cache.pin"),
        ({"cache": {"shared_prefix_tokens": -1}}, "cache.shared_prefix_tokens"),
        ({"cache": {"shared_prefix_tokens": 1.5}}, "cache.shared_prefix_tokens"),
        ({"cache": {"shared_prefix_tokens": 2**31}}, "cache.shared_prefix_tokens"),
        ({"cache": {"shared_prefix_tokens": True}}, "cache.shared_prefix_tokens"),
        ({"cache": "x"}, "cache"), ({"cache": [1]}, "cache"), ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "x" * (MAX_SALT + 1)}, "cache_salt"), ({"cache_salt": 5}, "cache_salt"),
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(site: Any, path: str, given: Any, param: str) -> None:
    site.refusal(send(site, path, **given), param)


@pytest.mark.parametrize(
    "field",
    ['"cache": {"ttl": 1e999}', '"cache": {"ttl": NaN}', '"cache": {"ttl": -Infinity}',
     r'"cache_salt": "\ud800"'],
)  # fmt: skip
def test_no_text_makes_a_value_that_is_none(site: Any, field: str) -> None:
    head = {"content-type": "application/json"}
    text = f'{{"prompt": "x", {field}}}'
    assert site.http.post("/v1/completions", content=text, headers=head).status_code == 400


def test_unknown_hints_are_named(site: Any) -> None:
    found = send(site, "/v1/completions", cache={"ttl": 1, "tll": 1})
    assert found.headers["x-jackfield-ignored-fields"] == "cache.tll"


def test_what_a_body_does_not_say_is_as_the_caller_has_it() -> None:
    own = CacheHints(60.0, True, "key", 32)
    assert CacheFields().over(own) == own
    assert CacheFields(pin=False, shared_prefix_tokens=0).over(own) == (60.0, False, "key", 0)


def test_a_salt_of_a_body_never_takes_one_away() -> None:
    own = CacheHints(salt="key")
    found = {salted(hints, salt).salt for hints in (own, CacheHints(salt="k"), CacheHints())
             for salt in ("a", "eya")}  # fmt: skip
    assert len(found) == 6 and salted(CacheHints(), "a").salt == "a"
    longest = "x" * MAX_SALT
    assert checked_hints(salted(CacheHints(salt=longest), longest))


def test_wrong_hints_of_a_plugin_are_its_fault() -> None:
    assert checked(RequestContext(cache=CacheHints(5.0))).cache == CacheHints(5.0)
    for wrong in (None, (1, 2), CacheHints(-1.0), CacheHints(salt="x" * 300)):
        with pytest.raises(WrongAnswer, match="wrong cache"):
            checked(RequestContext(cache=wrong))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def locked(folder: Path, serve: Any) -> Iterator[Any]:
    """A user's key and an operator's."""
    entries = {"alice": {"key": "a"}, "boss": {"key": "o", "trust": Trust.OPERATOR}}
    plugin = Keys(KeysConfig.model_validate({"entries": entries}))
    with serve(folder, HttpSettings(identify=[("keys", plugin.identify)], needs_key=True)) as site:
        yield site


def head(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def test_only_an_operator_resets_the_cache(
    site: Any, locked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for one in (site, locked):
        engine = one.llm.assembly.engine
        monkeypatch.setattr(engine, "reset_prefix_cache", lambda: not asked.append("asked"))
    site.refusal(site.http.post(RESET), None, 403)
    locked.refusal(locked.http.post(RESET), None, 401)
    locked.refusal(locked.http.post(RESET, headers=head("a")), None, 403)
    assert asked == []
    found = locked.http.post(RESET, headers=head("o"))
    assert (found.status_code, found.json(), asked) == (200, {"reset": True}, ["asked"])
    assert locked.http.get(RESET, headers=head("o")).status_code == 405


def test_a_cache_in_use_is_not_reset(locked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked.llm.assembly.engine, "reset_prefix_cache", lambda: False)
    found = locked.http.post(RESET, headers=head("o"))
    message = locked.refusal(found, None, 409)
    assert "try again" in message and found.json()["error"]["code"] == "cache_in_use"
    assert found.headers["retry-after"] == "1" and "x-should-retry" not in found.headers


def test_the_schema_tells_of_both(site: Any) -> None:
    document = site.http.get("/openapi.json").json()
    assert "post" in document["paths"][RESET]
    schemas = document["components"]["schemas"]
    assert set(schemas["CacheFields"]["properties"]) == {"ttl", "pin", "shared_prefix_tokens"}
    for name in ("ChatRequest", "CompletionRequest"):
        [text, _] = schemas[name]["properties"]["cache_salt"]["anyOf"]
        assert (text["minLength"], text["maxLength"]) == (1, MAX_SALT)
