"""Flag over environment over file over default, and where each value came from."""

from pathlib import Path

import pytest

from jackfield.core.api import ConfigError
from jackfield.core.host.environment import read_text
from jackfield.core.host.sources import load_config

FILE = """
[engine]
max_num_seqs = 1
threads = 2

[scheduler]
stack = ["fairness", "fcfs"]

[scheduler.fairness]
weights = { gold = 4, free = 1 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "engine.toml"
    path.write_text(FILE)
    return path


def test_precedence_and_origins(file: Path) -> None:
    env = {"JACKFIELD_ENGINE__THREADS": "3", "JACKFIELD_ENGINE__OVERLAP": "1"}
    resolved = load_config(file, env, {"engine.overlap": 0})
    engine = resolved.config.engine
    assert (engine.max_num_seqs, engine.threads, engine.overlap) == (1, 3, 0)
    assert engine.fault_limit == 3
    origins = {key: str(origin) for key, origin in resolved.origins.items()}
    assert origins["engine.max_num_seqs"] == f"file {file}:3"
    assert origins["engine.threads"] == "environment JACKFIELD_ENGINE__THREADS"
    assert origins["engine.overlap"] == "flag engine.overlap"
    assert origins["engine.fault_limit"] == "default"
    assert origins["scheduler.fairness.weights"] == f"file {file}:10"


def test_a_table_of_a_plugin_merges_key_by_key_and_a_value_is_replaced_whole(file: Path) -> None:
    env = {
        "JACKFIELD_SCHEDULER__FAIRNESS__WEIGHTS": "{ gold = 9 }",
        "JACKFIELD_SCHEDULER__FAIRNESS__QUANTUM": "0",
    }
    table = load_config(file, env).config.scheduler.plugin_tables
    assert table == {"fairness": {"weights": {"gold": 9}, "quantum": 0}}


def test_a_flag_that_is_none_was_not_given(file: Path) -> None:
    assert load_config(file, {}, {"engine.threads": None}).config.engine.threads == 2


def test_the_environment_names_the_file_unless_a_flag_does(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("engine.threads = 7")
    env = {"JACKFIELD_CONFIG": str(file)}
    assert load_config(None, env).config.engine.threads == 2
    assert load_config(other, env).config.engine.threads == 7


def test_an_empty_name_of_the_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="JACKFIELD_CONFIG is empty"):
        load_config(None, {"JACKFIELD_CONFIG": ""})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read: No such file"):
        load_config(tmp_path / "none.toml")


def test_broken_toml_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_text("[engine]\nthreads = = 3\n")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML: .*line 2"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[engin]\nthreads = 3", "unknown key engin.*Did you mean 'engine'"),
        ("model = 'folder'", "model is 'folder'.*file.*:1.*should be a table"),
        ("[scheduler]\n\nfairness = 3", "unknown key scheduler.fairness.*file.*:3"),
        ("[model]\nname.first = 'x'", "model.name is {'first': 'x'}.*:2.*valid string"),
    ],
)
def test_mistakes_in_a_file_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("JACKFIELD_ENGIN__THREADS", "JACKFIELD_ENGINE__THREADS"),
        ("JACKFIELD_THREADS", "JACKFIELD_ENGINE__THREADS"),
        ("JACKFIELD_CACH", "JACKFIELD_CACHE"),
        ("JACKFIELD_ENGINE__THREADS__X", "JACKFIELD_ENGINE__THREADS"),
        ("JACKFIELD_SCHEDULER__A__B__C", "SECTION__KEY"),
    ],
)
def test_unknown_variables_are_refused(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown environment variable {name}.*{hint}"):
        load_config(None, {name: "3"})


def test_an_unknown_key_in_a_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"JACKFIELD_ENGINE__THREAD.*Did you mean 'threads'"):
        load_config(None, {"JACKFIELD_ENGINE__THREAD": "3"})


def test_other_variables_are_left_alone() -> None:
    env = {"JACKFIELD_CACHE": "/x", "JACKFIELD_DEFAULT_WHEEL": "/y", "HOME": "/", "jackfield_x": ""}
    assert load_config(None, env).config == load_config().config


def test_variables_are_toml_or_text() -> None:
    env = {
        "JACKFIELD_SCHEDULER__STACK": '["fcfs"]',
        "JACKFIELD_MODEL__REVISION": "12e4567",
        "JACKFIELD_MODEL__NAME": "",
        "JACKFIELD_MODEL__SKIP_TOKENIZER_INIT": "false",
        "JACKFIELD_CACHE__MEMORY": "2MiB",
    }
    config = load_config(None, env).config
    assert config.scheduler.stack == ["fcfs"]
    assert (config.model.revision, config.model.name) == ("12e4567", "")
    assert config.model.skip_tokenizer_init is False
    assert config.cache.memory == 2 * 2**20


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("model.name", "123", "123"),
        ("model.name", '"123"', "123"),
        ("model.seed", "123", 123),
        ("scheduler.mine.x", "1\ny = 2", "1\ny = 2"),
        ("scheduler.mine.x", "not toml", "not toml"),
    ],
)
def test_what_a_text_means(key: str, text: str, value: object) -> None:
    assert read_text(tuple(key.split(".")), text) == value


def test_empty_values_of_a_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text(
        'model.skip_tokenizer_init = false\nmodel.name = ""\nengine.overlap = 0\n'
        "engine.starvation_share = 0.0\nscheduler.advisors = []\ncache.mine.on = false\n"
        'kernel.mine = { text = "", list = [], count = 0 }\n'
    )
    resolved = load_config(path)
    config = resolved.config
    assert (config.model.skip_tokenizer_init, config.model.name) == (False, "")
    assert (config.engine.overlap, config.engine.starvation_share) == (0, 0.0)
    assert config.scheduler.advisors == []
    assert config.cache.plugin_tables == {"mine": {"on": False}}
    assert config.kernel.plugin_tables == {"mine": {"text": "", "list": [], "count": 0}}
    for key in ("model.name", "engine.overlap", "cache.mine.on", "kernel.mine.list"):
        assert str(resolved.origins[key]).startswith(f"file {path}")


def test_one_key_from_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "engine.toml"
    path.write_text("cache.paged.block_size = 8")
    env = {"JACKFIELD_CACHE__PAGED__BLOCK_SIZE": "32"}
    cases = [(path, env, {"block_size": 64}, 64), (path, env, {}, 32), (path, {}, {}, 8)]
    for file, environ, flags, expected in cases:
        table = load_config(file, environ, flags).config.cache.plugin_tables["paged"]
        assert table == {"block_size": expected}
    assert "paged" not in load_config(None, {}, {}).config.cache.plugin_tables
