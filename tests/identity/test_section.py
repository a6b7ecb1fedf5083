"""The section `server`: its values, its plugins, and its secrets, before any engine is started."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield import __version__
from jackfield.core.api import (
    Caller,
    ConfigError,
    PluginContractError,
    PluginLoadError,
    PluginNotFound,
    RequestContext,
    Trust,
)
from jackfield.core.front.settings import resolve_settings
from jackfield.core.host.discover import discover_all
from jackfield.core.host.identifiers import build_identifiers
from jackfield.core.host.report import list_plugins
from jackfield.core.host.sources import load_config
from jackfield.core.process.client import _start
from jackfield.core.wire.codec import decode_command
from jackfield.core.wire.messages import Start
from jackfield.server.cli import main
from jackfield.server.http.identity import Identity

PLUGINS = """
from jackfield.core.api import Caller, PolicyConfig, RequestContext, Trust, hookimpl

class Named(PolicyConfig):
    header: str = "x-team"

class Header:
    Config = Named
    def __init__(self, config):
        self.header = config.header
    @hookimpl
    def identify(self, caller: Caller) -> RequestContext | None:
        found = caller.headers.get(self.header)
        return None if found is None else RequestContext(found, trust=Trust.USER)

class Local:
    Config = PolicyConfig
    def __init__(self, config):
        pass
    @hookimpl
    def identify(self, caller):
        return RequestContext("local") if caller.peer == "127.0.0.1" else None

class Idle:
    pass

class Odd(Local):
    @hookimpl(optionalhook=True, specname="not_yet")
    def identify(self, caller):
        return None

class Broken(Local):
    def __init__(self, config):
        raise OSError("no such table")
"""
NAMES = {"header": "Header", "local": "Local", "idle": "Idle", "odd": "Odd", "broken": "Broken"}
SECRET = """
[server]
port = 9001
[server.keys]
operator_keys = ["sesame-1"]
[server.keys.entries.alice]
key = "sesame-2"
tier = "gold"
[server.keys.entries.bob]
key_env = "BOB_KEY"
"""
Write = Callable[[str], Path]


@pytest.fixture
def plugins(install: Callable[..., Path]) -> None:
    install("callers", PLUGINS, server=NAMES)


def built(text: str, written: Write) -> Identity:
    return Identity(build_identifiers(load_config(written(text))).plugins)


def refused(text: str, written: Write, error: type[Exception] = ConfigError) -> str:
    with pytest.raises(error) as caught:
        build_identifiers(load_config(written(text)))
    return str(caught.value)


def test_by_default_everybody_is_let_in() -> None:
    identifiers = build_identifiers(load_config())
    assert identifiers.let_everybody_in
    assert Identity(identifiers.plugins).who(Caller()) == RequestContext()


def test_the_order_of_the_stack_decides(plugins: None, written: Write) -> None:
    caller = Caller("k", {"x-team": "t"}, "127.0.0.1")
    for stack, tenant in (('["header", "local"]', "t"), ('["local", "header"]', "local")):
        identity = built(f"[server]\nidentify = {stack}", written)
        found = identity.who(caller)
        assert found is not None and found.tenant == tenant
        assert identity.who(Caller("k")) is None


def test_a_plugin_beside_the_keys(plugins: None, written: Write) -> None:
    text = """
    [server]
    identify = ["callers:header", "keys"]
    [server.header]
    header = "x-project"
    [server.keys.entries.alice]
    key = "k"
    """
    identifiers = build_identifiers(load_config(written(text)))
    assert not identifiers.let_everybody_in
    identity = Identity(identifiers.plugins)
    both = identity.who(Caller("k", {"x-project": "p"}))
    assert both == RequestContext("p", trust=Trust.USER)
    assert identity.who(Caller("k")) == RequestContext("alice", trust=Trust.USER)
    assert identity.who(Caller("x", {"x-team": "p"})) is None


def test_mistakes_in_the_stack(plugins: None, written: Write) -> None:
    assert "so that nobody would be let in" in refused("server.identify = []", written)
    for keys in ("", "\n[server.keys]\nentries = {}"):
        message = refused(f'[server]\nidentify = ["header", "keys"]{keys}', written)
        assert "would let everybody in; give it keys, or take it out" in message
    message = refused('[server]\nidentify = ["kes"]', written, PluginNotFound)
    assert "the server plugin 'kes'. Did you mean 'keys'?" in message
    message = refused('[server]\nidentify = ["idle"]', written, PluginContractError)
    assert "has no method marked with hookimpl" in message
    message = refused('[server]\nidentify = ["odd"]', written, PluginContractError)
    assert "does not implement the hook 'identify'" in message
    message = refused('[server]\nidentify = ["broken"]', written, PluginLoadError)
    assert "cannot be constructed: OSError: no such table" in message
    message = refused('[server]\nidentify = ["header"]\n[server.keys]\nentries = {}', written)
    assert "server.keys (from file " in message
    assert ":4) is the section of a plugin, but no plugin 'keys' is in server.identify" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server.keys.entries.a.key = 77123", "server.keys.entries.a.key is ***"),
        ("[server.keys.entries.a]\nkey_sha256 = '77123'", ":1): String should match pattern"),
        ("[server.keys.entries.a]\nkye = '77123'", "keys.entries.a.kye (from file"),
        ("[server.keys.entries.a]\nkeys = '77123'", "Did you mean 'key'?"),
        ("[server.keys]\nentries = ['77123']", "server.keys.entries is ***"),
        ("server.keys = '77123'", "unknown key server.keys (from file"),
        ("[server.keys.entries.a]\nkey = '77123 '", "server.keys is refused by the server plugin"),
        ("[server.keys.entries.a]\nkey_env = 'NOT_SET'", "variable 'NOT_SET', which is not set"),
    ],
)
def test_mistakes_with_keys_do_not_show_them(text: str, message: str, written: Write) -> None:
    found = refused(text, written)
    assert message in found
    assert "77123" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 70000", "server.port is 70000 (from file"),
        ("drain_timeout = -1", "server.drain_timeout is -1"),
        ('served_model_name = [""]', "at least 1 character"),
        ("max_answers = 0", "greater than or equal to 1"),
        ('max_body = "1 furlong"', '"4GiB"'),
        ("prot = 1", "unknown key server.prot"),
    ],
)
def test_values_have_limits(text: str, message: str, written: Write) -> None:
    assert message in refused(f"[server]\n{text}", written)


def test_keys_from_the_environment_are_the_operators() -> None:
    env = {"JACKFIELD_API_KEY": "one, two\nthree"}
    identity = Identity(build_identifiers(load_config(None, env)).plugins)
    for key in ("one", "two", "three"):
        assert identity.who(Caller(key)) == RequestContext(trust=Trust.OPERATOR)
    assert identity.who(Caller("four")) is None
    with pytest.raises(ConfigError, match="JACKFIELD_API_KEY holds no key; unset it"):
        load_config(None, {"JACKFIELD_API_KEY": " ,"})
    mine = {**env, "JACKFIELD_SERVER__IDENTIFY": '["header"]'}
    with pytest.raises(Exception, match="'header'"):
        build_identifiers(load_config(None, mine))


def test_a_flag_beats_the_environment_and_that_the_file(written: Write) -> None:
    file = written(SECRET)
    key = "server.keys.operator_keys"
    for env, flags, known in (
        ({}, {}, "sesame-1"),
        ({"JACKFIELD_API_KEY": "env"}, {}, "env"),
        ({"JACKFIELD_API_KEY": "env"}, {key: ["flag"]}, "flag"),
    ):
        resolved = load_config(file, {**env, "JACKFIELD_SERVER__PORT": "9002"}, flags)
        assert resolved.config.server.port == 9002
        keys = resolved.config.server.plugin_tables["keys"]["operator_keys"]
        assert keys == [known]
    assert str(resolved.origins[key]) == f"flag {key}"


def test_secrets_are_not_shown(
    written: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_API_KEY", "sesame-3")
    file = written(SECRET)
    resolved = load_config(file, {"JACKFIELD_API_KEY": "sesame-3"})
    for text in (repr(resolved), str(resolved.config), repr(resolved.config.server)):
        assert "sesame" not in text and "keys='***'" in text
    for command in ("show", "schema"):
        for more in ((), ("--json",), ("--origin",), ("--origin", "--json")):
            if command == "schema" and "--origin" in more:
                continue
            assert main(["config", command, "--config", str(file), *more]) == 0
            text = capsys.readouterr().out
            assert "sesame" not in text
            assert command == "schema" or "***" in text
    shown = tomllib.loads(_shown(file, capsys))["server"]
    assert shown["port"] == 9001
    assert shown["keys"]["entries"]["alice"]["tier"] == "gold"
    assert shown["keys"]["entries"]["bob"]["key_env"] == "BOB_KEY"
    assert "key" not in shown["keys"]["entries"]["bob"]


def _shown(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    main(["config", "show", "--config", str(file), "--origin"])
    text = capsys.readouterr().out
    assert "# environment JACKFIELD_API_KEY" in text
    assert f"port = 9001  # file {file}:3" in text
    assert 'host = "127.0.0.1"  # default' in text
    return text


def test_the_engine_is_told_nothing_of_it(written: Write) -> None:
    resolved = load_config(written(SECRET))
    message = _start(resolved)
    assert b"sesame" not in message and b"server." not in message
    start = decode_command(message)
    assert isinstance(start, Start)
    assert "server" not in start.config and "engine" in start.config


def test_a_resolved_configuration_is_taken_as_it_is(written: Write) -> None:
    resolved = load_config(written(SECRET))
    assert resolve_settings(None, resolved, {}) is resolved
    with pytest.raises(ConfigError, match="nothing can be added"):
        resolve_settings("model", resolved, {})
    with pytest.raises(ConfigError, match="nothing can be added"):
        resolve_settings(None, resolved, {"seed": 1})


def test_plugins_are_listed_and_checked(
    plugins: None, written: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_config(written('[server]\nidentify = ["header"]')).config
    rows = {row.name: row for row in list_plugins(config, discover_all()) if row.kind == "server"}
    assert (rows["header"].active, rows["header"].reason) == (True, "in server.identify")
    assert (rows["keys"].active, rows["keys"].reason) == (False, "not in server.identify")
    assert rows["keys"].version == __version__
    main(["plugins", "check", "--json"])
    checked = json.loads(capsys.readouterr().out)["plugins"]
    found = {row["name"]: row for row in checked if row["kind"] == "server"}
    assert (found["keys"]["ok"], found["keys"]["provides"]) == (True, ["identify"])
    assert (found["header"]["ok"], found["idle"]["ok"]) == (True, False)


def serve_refused(capsys: pytest.CaptureFixture[str], *options: str, code: int = 2) -> str:
    assert main(["serve", "no-such-model", *options]) == code
    return capsys.readouterr().err


def test_serve_refuses_before_it_starts_an_engine(
    plugins: None, written: Write, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    started: list[Any] = []
    monkeypatch.setattr("jackfield.core.remote_llm.RemoteLLM.__init__", started.append)
    file = written('[server]\nidentify = ["header"]')
    message = serve_refused(capsys, "--config", str(file), "--api-key=secret")
    assert "--api-key needs the plugin 'keys' in server.identify, which is ['header']" in message
    assert "secret" not in message
    wrong = written('[server.keys.entries.alice]\nkey_env = "NOT_SET"')
    assert "entries.alice" in serve_refused(capsys, "--config", str(wrong))
    assert "server.port is 70000 (from flag" in serve_refused(capsys, "--port=70000")
    twice = serve_refused(capsys, "--port=8001", "--set", "server.port=8002")
    assert "--set server.port are both given" in twice
    empty = written('[server]\nidentify = ["kes"]')
    assert "Did you mean 'keys'?" in serve_refused(capsys, "--config", str(empty), code=3)
    assert started == []
