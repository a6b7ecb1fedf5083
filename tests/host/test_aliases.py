"""Names from other engines edit the configuration, and never contradict it in silence."""

from pathlib import Path
from typing import Any

import pytest

from jackfield.core.api import ConfigError
from jackfield.core.host.aliases import FIXED, PLAIN, alias_names
from jackfield.core.host.config import Config
from jackfield.core.host.sources import load_config


def configured(file: Path | None = None, /, **flags: Any) -> Config:
    return load_config(file, {}, {k.replace("__", "."): v for k, v in flags.items()}).config


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "stack.toml"
    path.write_text(text)
    return path


def test_plain_aliases() -> None:
    config = configured(
        model=Path("folder"), seed=0, max_num_seqs=3, num_gpu_blocks_override=9,
        gpu_memory_utilization=0.5, block_size=32, skip_tokenizer_init=False, device="cpu",
    )  # fmt: skip
    assert (config.model.name, config.engine.max_num_seqs) == ("folder", 3)
    assert (config.cache.num_blocks, config.cache.memory_fraction) == (9, 0.5)
    assert config.cache.plugin_tables == {"paged": {"block_size": 32}}


@pytest.mark.parametrize("alias", ["kv_cache_memory", "kv_cache_memory_bytes"])
def test_memory_of_the_cache_has_the_names_of_other_engines(alias: str) -> None:
    assert configured(**{alias: 2**31}).cache.memory == 2**31
    assert configured(**{alias: "2GiB"}).cache.memory == 2**31
    with pytest.raises(ConfigError, match=rf"{alias} sets cache\.memory to 2"):
        configured(**{alias: 2, "cache.memory": 3})


def test_every_plain_alias_means_a_key_that_exists() -> None:
    for section, key, *_ in PLAIN.values():
        fields = type(getattr(Config(), section)).model_fields
        assert key in fields or (section, key) == ("cache", "paged")


@pytest.mark.parametrize(
    ("flags", "scheduler", "cache"),
    [
        ({"scheduling_policy": "fcfs"}, ["fcfs"], ["paged", "prefix"]),
        ({"scheduling_policy": "priority"}, ["priority", "fcfs"], ["paged", "prefix"]),
        ({"enable_prefix_caching": True}, ["priority", "fcfs"], ["paged", "prefix"]),
        ({"enable_prefix_caching": False}, ["priority", "fcfs"], ["paged"]),
        ({"kv_cache_dtype": "auto"}, ["priority", "fcfs"], ["paged", "prefix"]),
        ({"kv_cache_dtype": "fp8"}, ["priority", "fcfs"], ["paged", "prefix", "fp8"]),
        (
            {"enable_prefix_caching": True, "swap_space": 2},
            ["priority", "fcfs"],
            ["paged", "prefix", "swap"],
        ),
        ({"swap_space": 0}, ["priority", "fcfs"], ["paged", "prefix"]),
    ],
)
def test_stack_aliases(flags: dict[str, Any], scheduler: list[str], cache: list[str]) -> None:
    config = configured(**flags)
    assert (config.scheduler.stack, config.cache.stack) == (scheduler, cache)


def test_swap_space_is_in_gib() -> None:
    assert configured(swap_space=1.5).cache.plugin_tables == {"swap": {"memory": 3 * 2**29}}


def test_the_origin_is_the_alias() -> None:
    origins = load_config(flags={"scheduling_policy": "fcfs", "block_size": 8}).origins
    assert str(origins["scheduler.stack"]) == "flag scheduling_policy"
    assert str(origins["cache.paged.block_size"]) == "flag block_size"


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("scheduler.stack = ['fcfs']", {"scheduling_policy": "priority"}),
        ("scheduler.stack = ['priority', 'fcfs']", {"scheduling_policy": "fcfs"}),
        ("cache.stack = ['paged']", {"enable_prefix_caching": True}),
        ("cache.stack = ['paged', 'prefix']", {"enable_prefix_caching": False}),
        ("cache.stack = ['paged']", {"kv_cache_dtype": "fp8"}),
        ("cache.stack = ['paged']", {"swap_space": 4}),
        ("cache.stack = ['paged', 'swap']", {"swap_space": 0}),
    ],
)
def test_an_alias_that_contradicts_the_file_names_both(
    tmp_path: Path, text: str, flags: dict[str, Any]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        configured(path, **flags)
    assert f"flag {next(iter(flags))} wants" in str(caught.value)
    assert f"file {path}:1" in str(caught.value)


def test_an_alias_that_contradicts_the_environment_or_a_flag_names_both() -> None:
    env = {"JACKFIELD_SCHEDULER__STACK": '["fcfs"]'}
    with pytest.raises(ConfigError, match=r"scheduling_policy.*JACKFIELD_SCHEDULER__STACK"):
        load_config(None, env, {"scheduling_policy": "priority"})
    with pytest.raises(ConfigError, match=r"scheduling_policy.*flag scheduler\.stack"):
        configured(scheduling_policy="priority", scheduler__stack=["fcfs"])


def test_an_alias_that_agrees_leaves_the_stack_alone(tmp_path: Path) -> None:
    text = "scheduler.stack = ['priority', 'fairness']\ncache.stack = ['x:prefix']"
    path = written(tmp_path, text)
    config = configured(path, scheduling_policy="priority", enable_prefix_caching=True)
    assert config.scheduler.stack == ["priority", "fairness"]
    assert config.cache.stack == ["x:prefix"]


def test_an_alias_and_its_own_key_must_agree(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"flag max_num_seqs .* 4, but flag engine\.max_num_s"):
        configured(max_num_seqs=4, engine__max_num_seqs=5)
    assert configured(max_num_seqs=4, engine__max_num_seqs=4).engine.max_num_seqs == 4
    assert configured(written(tmp_path, "engine.max_num_seqs = 9"), max_num_seqs=4) == configured(
        max_num_seqs=4
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pipeline_parallel_size", 2, "does not exist"),
        ("pipeline_parallel_size", True, "does not exist"),
        ("trust_remote_code", True, "no code from a model is ever run"),
        ("enable_chunked_prefill", False, "leave it at True"),
        ("enforce_eager", 3, "True or False"),
        ("scheduling_policy", "lifo", "'fcfs' or 'priority'"),
        ("kv_cache_dtype", "int4", "'fp8'"),
        ("enable_prefix_caching", "yes", "True or False"),
        ("swap_space", -1, "0 or more"),
        ("swap_space", False, "0 or more"),
    ],
)
def test_refused_values(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value!r}: .*{message}"):
        configured(**{name: value})


def test_enforce_eager_is_the_opposite_of_graphs() -> None:
    assert not configured(enforce_eager=True).engine.graphs
    assert configured(enforce_eager=False).engine.graphs
    with pytest.raises(ConfigError, match=r"engine\.graphs"):
        configured(enforce_eager=True, engine__graphs=True)


def test_accepted_values_change_nothing() -> None:
    for name, fixed in FIXED.items():
        for value in fixed.accepted:
            assert configured(**{name: value}) == Config()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_num_seq", "max_num_seqs"),
        ("tensor_parallel", "tensor_parallel_size"),
        ("engin.threads", "engine.threads"),
        ("engine.threads.x", "engine.threads"),
        ("scheduler", "scheduler.stack"),
    ],
)
def test_unknown_flags_name_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown flag '{name}'. Did you mean '{hint}'"):
        configured(**{name: 3})


def test_the_module_documents_every_alias() -> None:
    import jackfield.core.host.aliases as module

    assert [name for name in alias_names() if name not in (module.__doc__ or "")] == []
