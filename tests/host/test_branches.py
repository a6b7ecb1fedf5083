"""A stack that branches, everywhere where a configuration is shown or compared."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import PluginError, PolicyContext
from jackfield.core.host.aliases import alias_names
from jackfield.core.host.discover import discover_all
from jackfield.core.host.expected import expected_fingerprint
from jackfield.core.host.report import list_plugins
from jackfield.core.host.sources import load_config
from jackfield.core.host.stack import build_stack
from jackfield.server.cli import main

Install = Callable[..., Path]
POLICIES = """
from jackfield.core.api import Discipline

class Tenants(Discipline):
    def classify(self, request):
        return request.context.tenant

class Shortest(Discipline):
    def key(self, request, now):
        return request.num_prompt_tokens
"""
BRANCHING = '["priority", { "*" = ["tenants"], "0" = ["tenants", { "a" = ["shortest"] }] }]'


@pytest.fixture
def file(install: Install, plain_kernel: str, tmp_path: Path) -> Path:
    groups = {"schedulers": {"tenants": "pol:Tenants", "shortest": "pol:Shortest"}}
    install("pol", groups, "3.2", pol=POLICIES)
    path = tmp_path / "branching.toml"
    path.write_text(f'scheduler.stack = {BRANCHING}\nkernel.stack = ["{plain_kernel}"]\n')
    return path


def test_it_can_be_written_in_a_file_and_in_the_environment(file: Path) -> None:
    stack = load_config(file).config.scheduler.stack
    assert stack == tomllib.loads(f"stack = {BRANCHING}")["stack"]
    given = load_config(env={"JACKFIELD_SCHEDULER__STACK": BRANCHING}).config
    assert given.scheduler.stack == stack


def test_plugins_inside_branches_are_listed_as_active(file: Path) -> None:
    rows = list_plugins(load_config(file).config, discover_all())
    active = {row.name: row.reason for row in rows if row.active and row.kind == "schedulers"}
    assert active["shortest"] == active["tenants"] == active["priority"] == "in scheduler.stack"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["config", *arguments]) == 0
    return capsys.readouterr().out


def test_config_show_prints_what_can_be_read_again(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = tomllib.loads(f"stack = {BRANCHING}")["stack"]
    table = tomllib.loads(shown(capsys, "show", "--config", str(file)))
    assert table["scheduler"]["stack"] == stack
    document = json.loads(shown(capsys, "show", "--json", "--config", str(file)))
    assert document["config"]["scheduler"]["stack"] == stack


def test_config_schema_allows_a_table(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(shown(capsys, "schema", "--config", str(file)))
    items = schema["$defs"]["SchedulerConfig"]["properties"]["stack"]["items"]
    assert {kind["type"] for kind in items["anyOf"]} == {"string", "object"}


def test_an_alias_for_a_stack_agrees_or_says_why_not(file: Path) -> None:
    assert "scheduling_policy" in alias_names()
    load_config(file, flags={"scheduling_policy": "priority"})
    with pytest.raises(Exception, match="only 'fcfs'"):
        load_config(file, flags={"scheduling_policy": "fcfs"})


def test_another_process_expects_the_same_plugins(
    file: Path, make_context: Callable[[str], PolicyContext]
) -> None:
    config: Any = load_config(file).config
    theirs = build_stack(config, make_context=make_context).fingerprint()
    expected_fingerprint(config, discover_all(), theirs).check_same(theirs)
    straight = load_config(file, flags={"scheduler.stack": ["priority", "tenants"]}).config
    with pytest.raises(PluginError, match="selected different plugins"):
        expected_fingerprint(straight, discover_all(), theirs).check_same(theirs)
