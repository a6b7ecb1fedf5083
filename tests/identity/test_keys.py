"""The plugin `keys`: each key is its holder's and nobody else's, and what is wrong is named."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jackfield.core.api import Caller, ConfigError, RequestContext, Trust
from jackfield.plugins.server.keys import Keys, KeysConfig


def keys(entries: Any, operator_keys: Any = ()) -> Keys:
    return Keys(KeysConfig(entries=entries, operator_keys=list(operator_keys)))


def refused(entries: Any, operator_keys: Any = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        keys(entries, operator_keys)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_without_keys_everybody_is_anonymous() -> None:
    for key in (None, "any"):
        assert keys({}).identify(Caller(key)) == RequestContext(trust=Trust.ANONYMOUS)


def test_an_entry_says_who_its_holder_is() -> None:
    alice = {
        "key": "k", "tenant": "a", "tier": "gold", "priority": -1, "deadline": 30,
        "labels": {"team": "search"}, "trust": "operator",
    }  # fmt: skip
    plugin = keys({"alice": alice, "bob": {"key": "b"}})
    found = plugin.identify(Caller("k", now=100.0))
    expected = RequestContext("a", "gold", -1, 130.0, {"team": "search"}, Trust.OPERATOR)
    assert found == expected
    assert plugin.identify(Caller("b")) == RequestContext("bob", trust=Trust.USER)
    for wrong in (None, "", "K", "kb", "k ", "b\udcff"):
        assert plugin.identify(Caller(wrong)) is None


def test_operator_keys_are_of_one_operator() -> None:
    plugin = keys({"alice": {"key": "k"}}, ["x", "y", "x"])
    for key in ("x", "y"):
        assert plugin.identify(Caller(key)) == RequestContext(trust=Trust.OPERATOR)
    found = plugin.identify(Caller("k"))
    assert found is not None and found.trust is Trust.USER


def test_where_keys_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\n")
    monkeypatch.setenv("ALICE_KEY", "from-env")
    plugin = keys({
        "env": {"key_env": "ALICE_KEY"}, "file": {"key_file": str(file)}, "plain": {"key": "ü!"},
        "hash": {"key_sha256": sha256(b"from-hash").hexdigest().upper()},
    })  # fmt: skip
    sent = {"env": "from-env", "file": "from-file", "hash": "from-hash", "plain": "ü!"}
    for tenant, key in sent.items():
        assert plugin.identify(Caller(key)) == RequestContext(tenant, trust=Trust.USER)


def test_what_is_wrong_names_the_entry_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    monkeypatch.setenv("EMPTY_KEY", " ")
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    cases: list[tuple[dict[str, str], str]] = [
        ({}, "entries.x has no key; give it exactly one of key, key_env, key_file, key_sha256"),
        ({"key": "a", "key_env": "B"}, "entries.x has key and key_env; give it exactly one"),
        ({"key_env": "NO_KEY"}, "environment variable 'NO_KEY', which is not set; set it"),
        ({"key_env": "EMPTY_KEY"}, "'EMPTY_KEY', which is not set"),
        ({"key_file": str(tmp_path / "none")}, "none, which cannot be read: No such file"),
        ({"key_file": str(empty)}, "empty, which is empty; write one into it"),
        ({"key_file": str(binary)}, "binary, which cannot be read: it is no text"),
        ({"key": ""}, "entries.x has a key that no client can send"),
        ({"key": "sk-1 "}, "entries.x has a key that no client can send"),
        ({"key": "sk\n1"}, "entries.x has a key that no client can send"),
        ({"key": "**********"}, "entries.x has asterisks for a key"),
    ]
    for entry, message in cases:
        assert message in refused({"x": entry}), entry
    assert "sk" not in refused({"x": {"key": "sk-1 "}})
    assert "operator_keys has a key that no client can send" in refused({}, [""])


def test_one_key_has_one_holder() -> None:
    twice = {"a": {"key": "same"}, "b": {"key_sha256": sha256(b"same").hexdigest()}}
    assert refused(twice) == "entries.b has the key of entries.a; give each its own"
    assert "entries.a has the key of operator_keys" in refused({"a": {"key": "k"}}, ["k"])


@pytest.mark.parametrize(
    "entry",
    [
        {"key": 5}, {"key_sha256": "secret"}, {"key_sha256": "f" * 63}, {"kye": "secret"},
        {"key": "secret", "priority": "high"}, {"key": "secret", "priority": 2**31},
        {"key": "secret", "deadline": 0}, {"key": "secret", "deadline": float("inf")},
        {"key": "secret", "trust": "anonymous"}, {"key": "secret", "trust": "root"},
        {"key": "secret", "labels": {"a": 1}}, {"key": "secret", "tenant": ""}, "secret",
    ],
    ids=str,
)  # fmt: skip
def test_wrong_values(entry: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        keys({"x": entry})
    assert "secret" not in str(caught.value)


def test_keys_are_not_shown() -> None:
    config = KeysConfig.model_validate({"entries": {"a": {"key": "secret"}},
                                        "operator_keys": ["secret"]})  # fmt: skip
    for text in (repr(config), str(config), config.model_dump_json(), repr(config.model_dump())):
        assert "secret" not in text and "***" in text


TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_categories=["C", "Z"]),
                min_size=1, max_size=12).filter(lambda text: text.strip("*") != "")  # fmt: skip
NAMES = st.text("abcdef", min_size=1, max_size=4)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Keys by the names of their entries, and who their holders are; all keys differ."""
    drawn = draw(st.lists(TEXTS, min_size=1, max_size=8, unique=True))
    return {
        f"entry{place}": {
            "key": key,
            "tenant": draw(st.none() | NAMES),
            "tier": draw(NAMES),
            "priority": draw(st.integers(-5, 5)),
            "deadline": draw(st.none() | st.floats(0.5, 100)),
            "labels": draw(st.dictionaries(NAMES, NAMES, max_size=2)),
            "trust": draw(st.sampled_from(["user", "operator"])),
        }
        for place, key in enumerate(drawn)
    }


@given(tables(), TEXTS, st.floats(0, 1e6))
def test_a_key_gets_the_context_of_its_entry_and_no_other(
    table: dict[str, dict[str, Any]], other: str, now: float
) -> None:
    plugin = keys(table)
    for name, entry in table.items():
        deadline = None if entry["deadline"] is None else now + entry["deadline"]
        tenant = entry["tenant"] or name
        expected = RequestContext(
            tenant, entry["tier"], entry["priority"], deadline, entry["labels"],
            Trust(entry["trust"]),
        )  # fmt: skip
        assert plugin.identify(Caller(entry["key"], now=now)) == expected
    if other not in {entry["key"] for entry in table.values()}:
        assert plugin.identify(Caller(other, now=now)) is None
