"""Numbers and tiers of a key, and gateways: who may pass other tenants on, and as what."""

from typing import Any

import pytest
from pydantic import ValidationError

from jackfield.core.api import (
    Caller,
    ConfigError,
    PassedOn,
    RequestContext,
    RequestError,
    Trust,
    passed_on,
)
from jackfield.plugins.server.keys import Keys, KeysConfig
from jackfield.server.http.tiers import choose
from jackfield.server.http.unheard import unheard

GATEWAY = {
    "gate": {"key": "g", "tier": "silver", "may_act_for": ["team-*", "alice"], "trust": "operator",
             "labels": {"via": "gate"}},
    "alice": {"key": "a", "tier": "gold", "priority": 2, "deadline": 30, "weight": 4},
}  # fmt: skip


def keys(entries: Any = GATEWAY) -> Keys:
    return Keys(KeysConfig(entries=entries))


def ask(key: str, plugin: Keys | None = None, **headers: str) -> RequestContext:
    given = {f"x-jackfield-{name.replace('_', '-')}": text for name, text in headers.items()}
    found = (plugin or keys()).identify(Caller(key, given, now=100.0))
    assert found is not None
    return found


def test_numbers_and_tiers_become_labels() -> None:
    entry = {
        "key": "k", "weight": 2.5, "requests_per_minute": 60, "tokens_per_minute": 1e6,
        "tiers": ["batch", "gold"], "labels": {"team": "x"},
    }  # fmt: skip
    assert ask("k", keys({"one": entry})).labels == {
        "team": "x", "weight": "2.5", "requests_per_minute": "60", "tokens_per_minute": "1000000",
        "tiers": "batch,gold",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight", 0), ("weight", -1), ("tokens_per_minute", "many"), ("requests_per_minute", True),
     ("weight", float("inf")), ("tiers", ["a,b"]), ("may_act_for", [""])],
)  # fmt: skip
def test_what_is_no_number_above_0_is_refused_at_the_start(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        KeysConfig(entries={"one": {"key": "k", field: value}})


def test_a_label_with_the_name_of_a_field_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"entries\.one has a label 'weight'.*the field weight"):
        keys({"one": {"key": "k", "labels": {"weight": "4"}}})


def test_a_gateway_passes_on_a_tenant_that_has_a_key() -> None:
    found = ask("g", tenant="alice")
    assert found == RequestContext("alice", "gold", 2, 130.0, {"weight": "4"}, Trust.USER)


def test_a_gateway_passes_on_a_tenant_that_has_none() -> None:
    found = ask("g", tenant="team-x", tier="bronze", priority="-3", deadline_ms="1500")
    labels = {"via": "gate"}
    assert found == RequestContext("team-x", "bronze", -3, 101.5, labels, Trust.USER)


def test_a_gateway_may_ask_for_itself() -> None:
    labels = {"via": "gate"}
    assert ask("g") == RequestContext("gate", "silver", labels=labels, trust=Trust.OPERATOR)
    assert ask("g", priority="7").priority == 7


def test_a_tenant_that_is_not_the_gateways_is_refused() -> None:
    for tenant in ("bob", "team", "Alice"):
        with pytest.raises(RequestError, match="may not act for") as caught:
            ask("g", tenant=tenant)
        assert caught.value.code == "tenant_not_allowed"


def test_nobody_else_is_believed() -> None:
    assert ask("a", tenant="gate", priority="-9") == ask("a")
    boss = Keys(KeysConfig.model_validate({"operator_keys": ["boss"]}))
    assert ask("boss", boss, tenant="alice") == RequestContext(trust=Trust.OPERATOR)
    assert ask("any", keys({}), tenant="alice") == RequestContext()


@pytest.mark.parametrize(
    ("header", "text"),
    [("tenant", ""), ("tenant", "x" * 129), ("tier", "a\tb"), ("priority", "1.5"),
     ("priority", "9999999999"), ("priority", "--1"), ("priority", "\u0661"),
     ("deadline-ms", "0"), ("deadline-ms", "soon"), ("deadline-ms", "nan"),
     ("deadline-ms", "-5"), ("deadline-ms", "inf")],
)  # fmt: skip
def test_a_wrong_header_is_named(header: str, text: str) -> None:
    name = f"x-jackfield-{header}"
    with pytest.raises(RequestError, match=name) as caught:
        passed_on(Caller(headers={name: text}))
    assert caught.value.param == name


def test_headers_that_were_not_believed_are_told() -> None:
    headers = {"x-jackfield-tenant": "t", "x-jackfield-priority": "3", "x-other": "1"}
    caller = Caller(headers=headers, now=5.0)
    assert passed_on(caller) == PassedOn("t", None, 3)
    assert unheard(caller, RequestContext("t", priority=3)) == []
    assert unheard(caller, RequestContext("t")) == ["x-jackfield-priority"]
    assert unheard(caller, RequestContext()) == ["x-jackfield-tenant", "x-jackfield-priority"]
    broken = Caller(headers={"x-jackfield-priority": "high"})
    assert unheard(broken, RequestContext()) == ["x-jackfield-priority"]


TIERS = {"flex": "batch", "priority": "gold"}
USER = RequestContext("u", "silver", labels={"tiers": "batch, bronze"}, trust=Trust.USER)


@pytest.mark.parametrize(
    ("context", "wanted", "tier", "shown", "heard"),
    [
        (USER, None, "silver", "default", True),
        (USER, "auto", "silver", "default", True),
        (USER, "flex", "batch", "flex", True),
        (USER, "priority", "silver", "default", False),
        (USER, "scale", "silver", "default", False),
        (USER._replace(tier="gold"), "priority", "gold", "priority", True),
        (USER._replace(trust=Trust.OPERATOR), "priority", "gold", "priority", True),
        (RequestContext(), "priority", "gold", "priority", True),
    ],
)
def test_who_may_have_which_tier(
    context: RequestContext, wanted: str | None, tier: str, shown: str, heard: bool
) -> None:
    found = choose(TIERS, context, wanted)
    assert (found.context, found.shown, found.heard) == (context._replace(tier=tier), shown, heard)


def test_without_tiers_there_is_one() -> None:
    assert choose({}, USER, "flex") == (USER, "default", True)
