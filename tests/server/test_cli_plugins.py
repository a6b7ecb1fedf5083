"""`jackfield plugins` and `jackfield config`, and how the command line tells errors."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from jackfield import __version__
from jackfield.core.api import JackfieldError
from jackfield.server.cli import COMMANDS, application, main
from jackfield.server.failure import report
from jackfield.server.table import table
from jackfield.server.toml_text import toml_tables, toml_value

KERNEL = """
from jackfield.core.api import KernelPlugin

class Plain(KernelPlugin):
    def operations(self):
        return {"attention": object()}
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("JACKFIELD_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that selects a kernel plugin of no tensors, installed beside it."""
    info = tmp_path / "site" / "cli_kernels-0.7.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cli-kernels\nVersion: 0.7\n")
    (info / "entry_points.txt").write_text("[jackfield.v1.kernels]\nplain = cli_kernels:Plain\n")
    (info.parent / "cli_kernels.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(str(info.parent))
    path = tmp_path / "engine.toml"
    path.write_text('[kernel]\nstack = ["plain"]\n\n[engine]\nmax_num_seqs = 5\n')
    return path


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def failure(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """The one line on the error stream."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    return captured.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(output(capsys, *arguments, "--json", code=code))


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ((), ("--help",)):
        text = output(capsys, *arguments)
        assert all(command.name in text and command.summary in text for command in COMMANDS)


def test_every_command_registers_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        assert f"jackfield {command.name}" in output(capsys, command.name, "--help")


def test_only_the_named_command_is_whole() -> None:
    app = application(["plugins", "list"])
    assert [group.name for group in app.registered_groups] == ["plugins"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "--version") == f"jackfield {__version__}\n"


def test_list(capsys: pytest.CaptureFixture[str], plain: Path) -> None:
    lines = output(capsys, "plugins", "list", "--config", str(plain)).splitlines()
    assert lines[0].split() == [
        "KIND", "NAME", "DISTRIBUTION", "VERSION", "API", "ACTIVE", "REASON",
    ]  # fmt: skip
    rows = {tuple(line.split()[:2]): line.split()[2:] for line in lines[1:]}
    assert rows["kernels", "plain"] == ["cli-kernels", "0.7", "v1", "yes", "in", "kernel.stack"]
    assert rows["kernels", "torch"][3] == "no"


def test_list_as_json(capsys: pytest.CaptureFixture[str], plain: Path) -> None:
    found = document(capsys, "plugins", "list", "--config", str(plain))["plugins"]
    (row,) = [row for row in found if row["name"] == "plain"]
    assert row == {
        "kind": "kernels", "name": "plain", "distribution": "cli-kernels", "version": "0.7",
        "api": 1, "active": True, "reason": "in kernel.stack",
    }  # fmt: skip


def test_show_is_a_file_that_means_the_same(
    capsys: pytest.CaptureFixture[str], plain: Path, tmp_path: Path
) -> None:
    shown = output(capsys, "config", "show", "--config", str(plain))
    table = tomllib.loads(shown)
    assert table["engine"]["max_num_seqs"] == 5
    assert table["cache"]["paged"] == {"block_size": 16}
    again = tmp_path / "again.toml"
    again.write_text(shown)
    assert output(capsys, "config", "show", "--config", str(again)) == shown


def test_show_with_origins(
    capsys: pytest.CaptureFixture[str], plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_CONFIG", str(plain))
    monkeypatch.setenv("JACKFIELD_ENGINE__THREADS", "2")
    arguments = ("config", "show", "--origin", "--set", "engine.overlap=0", "--set", "model.seed=7")
    text = output(capsys, *arguments)
    assert f"max_num_seqs = 5  # file {plain}:5" in text
    assert "threads = 2  # environment JACKFIELD_ENGINE__THREADS" in text
    assert "overlap = 0  # flag engine.overlap" in text
    assert "# max_model_len is not set  # default" in text
    assert f"block_size = 16  # plugin default jackfield {__version__}" in text
    found = document(capsys, *arguments)
    assert found["config"]["model"]["seed"] == 7
    assert found["origins"]["model.seed"] == "flag model.seed"
    assert found["origins"]["cache.stack"] == "default"


def test_settings_may_be_aliases(capsys: pytest.CaptureFixture[str], plain: Path) -> None:
    arguments = ("config", "show", "--config", str(plain), "--set", "scheduling_policy=fcfs")
    assert document(capsys, *arguments)["config"]["scheduler"]["stack"] == ["fcfs"]


def test_schema(capsys: pytest.CaptureFixture[str], plain: Path) -> None:
    schema = json.loads(output(capsys, "config", "schema", "--config", str(plain)))
    assert schema == document(capsys, "config", "schema", "--config", str(plain))
    assert "paged" in schema["$defs"]["CacheConfig"]["properties"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("config", "show", "--set", "engine.threads=0"), 2, "engine.threads is 0 (from flag"),
        (("config", "show", "--set", "engine.threads"), 2, "should be KEY=VALUE"),
        (("config", "show", "--set", "a.b=1", "--set", "a.b=2"), 2, "a.b is given twice"),
        (("config", "show", "--config", "none.toml"), 2, "none.toml cannot be read"),
        (("config", "show", "--set", 'cache.stack=["pagd"]'), 3, "Did you mean 'paged'?"),
        (("plugins", "lst"), 2, "Did you mean 'list'? See 'jackfield plugins --help'."),
        (("plugin",), 2, "Did you mean 'plugins'"),
        (("plugins", "list", "--jsn"), 2, "--jsn"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert message in failure(capsys, *arguments, code=code)


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "config", "show", "--set", "engine.threads=0", code=2)
    assert found["error"]["type"] == "ConfigError"
    assert found["error"]["exit_code"] == 2
    assert "engine.threads" in found["error"]["message"]


def test_a_defect_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        report(ZeroDivisionError("defect"), as_json=False)
    assert report(JackfieldError("known"), as_json=False) == 1


def test_toml_values_read_back() -> None:
    values = {
        "text": 'quote " back \\ line\n del \x7f ü', "flag": False, "none": 0, "share": 0.5,
        "list": ["a", 1, []], "table": {"odd key": {"x": 1}, "b": {}},
    }  # fmt: skip
    assert tomllib.loads("\n".join(f"{k} = {toml_value(v)}" for k, v in values.items())) == values
    assert tomllib.loads(toml_tables({"a": {"b": {"c": 1}, "d": ""}}, {})) == {
        "a": {"b": {"c": 1}, "d": ""}
    }


def test_tables_line_up() -> None:
    assert table(("A", "LONG"), [("wide", "x"), ("y", "")]) == "A     LONG\nwide  x\ny"
