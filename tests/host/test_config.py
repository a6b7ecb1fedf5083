"""Values are kept or refused, and a refusal names key, value, limit and way out."""

from typing import Any

import pytest
from pydantic import ValidationError

from jackfield.core.api import ConfigError
from jackfield.core.host.config import Config, core_keys, parse_bytes
from jackfield.core.host.sources import load_config


def refused(**flags: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(flags={name.replace("__", "."): value for name, value in flags.items()})
    return str(caught.value)


def test_defaults() -> None:
    config = load_config().config
    assert config == Config()
    assert config.scheduler.stack == ["priority", "fcfs"]
    assert config.cache.stack == ["paged", "prefix"]
    assert config.cache.evictors("device") == config.cache.evictors("host") == [
        "pin", "ttl", "lru"
    ]  # fmt: skip
    assert config.kernel.stack == ["triton", "cpu", "torch"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.skip_tokenizer_init", False),
        ("model.seed", 0),
        ("model.name", ""),
        ("engine.overlap", 0),
        ("engine.starvation_share", 0),
        ("engine.decision_log", 0),
        ("scheduler.stack", []),
        ("scheduler.advisors", []),
        ("scheduler.mine.weights", {}),
        ("scheduler.mine.limit", 0),
        ("cache.mine.on", False),
        ("kernel.mine.text", ""),
    ],
)
def test_empty_values_are_kept(key: str, value: Any) -> None:
    section, *path = key.split(".")
    found = load_config(flags={key: value}).config.model_dump()[section]
    for part in path:
        found = found[part]
    assert found == value


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("engine.max_num_seqs", 0, "greater than or equal to 1"),
        ("engine.max_num_seqs", False, "valid integer"),
        ("engine.max_num_seqs", "8", "valid integer"),
        ("engine.overlap", 3, "less than or equal to 2"),
        ("engine.starvation_share", 1.5, "less than or equal to 1"),
        ("engine.starvation_share", float("nan"), "finite number"),
        ("engine.hook_budget", 0, "greater than 0"),
        ("model.dtype", "", "'bfloat16'"),
        ("model.max_model_len", 0, "greater than or equal to 1"),
        ("cache.memory", "4 parsecs", '"4GiB"'),
        ("cache.memory", 0, "greater than or equal to 1"),
        ("cache.num_blocks", 0, "greater than or equal to 1"),
        ("cache.stack", "paged", "valid list"),
        ("cache.stack", ["paged", "some:paged"], "repeated: paged"),
        ("kernel.stack", [""], "an entry is empty"),
    ],
)
def test_a_refusal_names_key_value_origin_and_limit(key: str, value: Any, limit: str) -> None:
    message = refused(**{key: value})
    assert f"{key} is {value!r} (from flag {key})" in message
    assert limit in message


def test_every_mistake_is_told_at_once() -> None:
    message = refused(engine__overlap=7, engine__max_num_seqs=0)
    assert "engine.overlap" in message
    assert "engine.max_num_seqs" in message


def test_unknown_keys_name_the_nearest() -> None:
    assert "unknown key engine.max_num_seq " in refused(engine__max_num_seq=4)
    assert "Did you mean 'max_num_seqs'?" in refused(engine__max_num_seq=4)
    assert "Did you mean 'stack'?" in refused(scheduler__stak=["fcfs"])
    assert "Did you mean model.seed?" in refused(engine__seed=4)


@pytest.mark.parametrize(
    ("text", "count"),
    [("4GiB", 4 * 2**30), ("500MB", 500 * 10**6), ("1.5 kib", 1536), ("12", 12), ("7B", 7)],
)
def test_sizes(text: str, count: int) -> None:
    assert load_config(flags={"cache.memory": text}).config.cache.memory == count
    assert parse_bytes(count) == count


def test_values_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().engine.max_num_seqs = 3  # type: ignore[misc]


def test_core_keys_are_all_of_them() -> None:
    dump = Config().model_dump()
    assert sorted(core_keys()) == sorted(f"{s}.{k}" for s, keys in dump.items() for k in keys)
