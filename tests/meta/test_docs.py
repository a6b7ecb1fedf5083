"""The documents say what the code says: links, commands, examples and settings."""

import ast
import re
import subprocess
import sys
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import API_VERSION, KINDS, Discipline
from jackfield.core.host.aliases import alias_names
from jackfield.core.host.config import SECTIONS, core_keys
from jackfield.core.host.contract import limits
from jackfield.core.host.environment import OTHERS
from jackfield.core.host.sources import load_config
from jackfield.core.testing import pytest_plugin
from jackfield.server.cli import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "changelog/README.md"]
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")
COMMAND = re.compile(r"`((?:jackfield |\./scripts/)[^`\n]+)`")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]*?) \|", re.MULTILINE)
FIXTURE = type(pytest.fixture(lambda: None))
TYPES = ("added", "changed", "deprecated", "removed", "fixed")


def blocks(language: str) -> list[Any]:
    found = []
    for page in PAGES:
        for match in BLOCK.finditer(page.read_text()):
            if match[1] == language:
                line = page.read_text()[: match.start()].count("\n") + 1
                found.append(pytest.param(match[2], id=f"{page.name}:{line}"))
    return found


def commands() -> list[str]:
    lines = [line for block in blocks("sh") for line in block.values[0].splitlines()]
    return [*lines, *(found for page in PAGES for found in COMMAND.findall(page.read_text()))]


def section(title: str) -> str:
    text = (ROOT / "docs" / "configuration.md").read_text()
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    targets = [target for target, _ in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("script", ["make_hooks_doc.py", "make_policies_doc.py"])
def test_pages_that_the_code_makes_are_up_to_date(script: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_scripts_exist_and_can_be_run() -> None:
    named = {line.split()[0] for line in commands() if line.startswith("./")}
    assert named >= {"./scripts/hello", "./scripts/test"}
    assert [name for name in named if not (ROOT / name).stat().st_mode & 0o111] == []


def test_commands_exist() -> None:
    known = {command.name for command in COMMANDS}
    words = [line.split() for line in commands() if line.startswith("jackfield ")]
    assert len(words) > 3
    assert [line for line in words if line[1] not in known] == []


@pytest.mark.parametrize("source", blocks("python"))
def test_examples_import_what_exists(source: str) -> None:
    body = ast.parse(source).body
    imports = [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    exec("\n".join(imports), {})


@pytest.mark.parametrize("source", [b for b in blocks("python") if "\nclass " in b.values[0]])
def test_example_policies_keep_the_contract(source: str) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(source, names)
    policies = [each for each in names.values() if getattr(each, "__module__", "") == "example"]
    assert any(issubclass(each, Discipline) or limits(each) for each in policies)


@pytest.mark.parametrize("source", [b for b in blocks("python") if "def test_" in b.values[0]])
def test_example_tests_pass(source: str, request: pytest.FixtureRequest) -> None:
    names: dict[str, Any] = {}
    exec(source, names)
    tests = [each for name, each in names.items() if name.startswith("test_")]
    for test in tests:
        test(**{name: request.getfixturevalue(name) for name in signature(test).parameters})
    assert tests


def test_fixtures_of_the_kit_are_documented() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text()
    made = [name for name, each in vars(pytest_plugin).items() if isinstance(each, FIXTURE)]
    assert len(made) > 3
    assert [name for name in made if f"`{name}`" not in page] == []


@pytest.mark.parametrize("source", blocks("toml"))
def test_example_configurations_are_valid(source: str, tmp_path: Path) -> None:
    if "[project" in source:
        groups = re.findall(r'entry-points\."([^"]+)"', source)
        assert set(groups) <= {f"jackfield.v{API_VERSION}.{kind}" for kind in KINDS}
        return
    file = tmp_path / "stack.toml"
    file.write_text(source)
    load_config(file)


def test_every_room_is_described() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = [f"core/{file.parent.name}" for file in (ROOT / "core").glob("*/__init__.py")]
    assert len(rooms) > 5
    assert [room for room in rooms if f"| `{room}` |" not in page] == []


def test_every_setting_is_documented_with_its_default() -> None:
    rows = [row for name in SECTIONS for row in ROW.findall(section(name))]
    documented = {key: default.strip("`").replace('"', "'") for key, default in rows}
    assert documented == {key: shown(key) for key in core_keys()}


def test_every_setting_of_a_policy_is_documented() -> None:
    """On the page of the policy, which the code makes."""
    missing = []
    for name, policy in policies().items():
        page = (ROOT / "docs" / "policies" / f"{name}.md").read_text()
        documented = {key for key, _ in ROW.findall(page)}
        keys = {f"scheduler.{name}.{field}" for field in policy.Config.model_fields}
        missing += sorted(keys - documented)
        missing += [name] * (f"policies/{name}.md" not in (ROOT / "docs/policies.md").read_text())
    assert missing == []


def test_every_policy_says_what_it_promises_and_where_it_comes_from() -> None:
    silent = [
        name
        for name, policy in policies().items()
        if not all(f"{word}: " in policy.__doc__ for word in ("Guarantee", "Source"))
    ]
    assert silent == []


def policies() -> dict[str, Any]:
    points = entry_points(group=f"jackfield.v{API_VERSION}.schedulers")
    return {one.name: one.load() for one in points if one.value.startswith("jackfield.plugins.")}


def shown(key: str) -> str:
    name, _, field = key.partition(".")
    default = SECTIONS[name].model_fields[field].default
    if default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else repr(default).replace('"', "'")


def test_every_alias_is_documented() -> None:
    assert [alias for alias, _ in ROW.findall(section("Aliases"))] == alias_names()


def test_every_variable_is_documented() -> None:
    assert {name for name, _ in ROW.findall(section("Other variables"))} == OTHERS


def test_changelog_fragments_have_a_type() -> None:
    names = [path.name for path in (ROOT / "changelog").iterdir() if path.name != "README.md"]
    endings = tuple(f".{kind}.md" for kind in TYPES)
    assert [name for name in names if not name.endswith(endings)] == []
