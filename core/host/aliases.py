"""Names that people know from other engines, as edits of the configuration.

| alias | means |
|---|---|
| model, tokenizer, revision, dtype, seed, max_model_len, load_format, skip_tokenizer_init, \
generation_config | the key of `model` (`model` itself: `model.name`) |
| device, max_num_seqs, max_num_batched_tokens | the key of `engine` |
| block_size | `cache.paged.block_size` |
| num_gpu_blocks_override | `cache.num_blocks` |
| gpu_memory_utilization | `cache.memory_fraction` |
| kv_cache_memory, kv_cache_memory_bytes | `cache.memory` |
| scheduling_policy | `scheduler.stack`: "fcfs" or "priority" |
| enable_prefix_caching | "prefix" in `cache.stack`, or not |
| kv_cache_dtype | "fp8", "fp8_e4m3", "fp8_e5m2" or "int8": "fp8" in `cache.stack`, with that \
`cache.fp8.format`; "auto" says nothing |
| swap_space | above 0 adds "swap" to `cache.stack`, with that many GiB |
| tensor_parallel_size | `parallel.tensor` |
| enable_expert_parallel, expert_parallel | `parallel.experts` |
| nnodes, node_rank, master_addr, master_port | `parallel.nodes`, `parallel.node_rank`, \
`parallel.master_address`, `parallel.master_port` |
| pipeline_parallel_size | 1 |
| trust_remote_code | False: no code of a model is ever run |
| enable_chunked_prefill | True: prompts are always cut when they must be |
| enforce_eager | the opposite of `engine.graphs` |
| disable_log_stats | True or False: statistics are not written to the log either way |
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from jackfield.core.api import ConfigError
from jackfield.core.api.errors import nearest
from jackfield.core.host.config import SECTIONS, core_keys, holds_plugins
from jackfield.core.host.layers import flatten, nest
from jackfield.core.host.origin import Given, Key, Layer, Origin, dotted
from jackfield.core.host.stack_edits import STACK_ALIASES, StackEdit

PLAIN: Mapping[str, Key] = {
    "model": ("model", "name"),
    "tokenizer": ("model", "tokenizer"),
    "revision": ("model", "revision"),
    "dtype": ("model", "dtype"),
    "seed": ("model", "seed"),
    "max_model_len": ("model", "max_model_len"),
    "load_format": ("model", "load_format"),
    "skip_tokenizer_init": ("model", "skip_tokenizer_init"),
    "generation_config": ("model", "generation_config"),
    "device": ("engine", "device"),
    "max_num_seqs": ("engine", "max_num_seqs"),
    "max_num_batched_tokens": ("engine", "max_num_batched_tokens"),
    "block_size": ("cache", "paged", "block_size"),
    "num_gpu_blocks_override": ("cache", "num_blocks"),
    "gpu_memory_utilization": ("cache", "memory_fraction"),
    "kv_cache_memory": ("cache", "memory"),
    "kv_cache_memory_bytes": ("cache", "memory"),
    "tensor_parallel_size": ("parallel", "tensor"),
    "enable_expert_parallel": ("parallel", "experts"),
    "expert_parallel": ("parallel", "experts"),
    "nnodes": ("parallel", "nodes"),
    "node_rank": ("parallel", "node_rank"),
    "master_addr": ("parallel", "master_address"),
    "master_port": ("parallel", "master_port"),
}


NEGATED: Mapping[str, Key] = {"enforce_eager": ("engine", "graphs")}
"""Aliases of True or False that mean the opposite of a key."""


class Fixed(NamedTuple):
    """An alias that may only say what is the case; `otherwise` is what to tell who says more."""

    accepted: tuple[Any, ...]
    otherwise: str


FIXED: Mapping[str, Fixed] = {
    "pipeline_parallel_size": Fixed(
        (1,), "pipeline parallel execution does not exist; leave it at 1"
    ),
    "trust_remote_code": Fixed((False,), "no code from a model is ever run; leave it at False"),
    "enable_chunked_prefill": Fixed(
        (True,), "prompts are always computed in parts when they must be; leave it at True"
    ),
    "disable_log_stats": Fixed((True, False), "it should be True or False"),
}


def alias_names() -> list[str]:
    """Every alias."""
    return [*PLAIN, *NEGATED, *STACK_ALIASES, *FIXED]


def apply_aliases(flags: Mapping[str, Any], below: Mapping[Key, Given]) -> dict[Key, Given]:
    """The values that the flags mean: dotted keys as they are, aliases as edits.

    below: what weaker layers say. A flag that is None was not given. Raises `ConfigError` for an
    unknown name, for an alias whose value is refused, and for an alias that contradicts a dotted
    flag, another alias, or a stack that somebody wrote down.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    values = _dotted_flags(given)
    written = {**below, **values}
    for name, value in given.items():
        if "." in name:
            continue
        if name in PLAIN:
            plain = os.fspath(value) if isinstance(value, os.PathLike) else value
            _put(values, PLAIN[name], Given(plain, _flag(name)))
        elif name in NEGATED:
            _put(values, NEGATED[name], Given(_opposite(name, value), _flag(name)))
        elif name in STACK_ALIASES:
            _edit(values, written, name, STACK_ALIASES[name](value))
        else:
            _check_fixed(name, value)
    return values


def _flag(name: str) -> Origin:
    return Origin(Layer.FLAG, name)


def _dotted_flags(flags: Mapping[str, Any]) -> dict[Key, Given]:
    values: dict[Key, Given] = {}
    for name, value in flags.items():
        if "." in name:
            flat = flatten(nest({_dotted_key(name): value}))
            values.update({key: Given(inner, _flag(name)) for key, inner in flat.items()})
    return values


def _dotted_key(name: str) -> Key:
    key = tuple(name.split("."))
    length = 3 if key[0] in SECTIONS and holds_plugins(key[0]) else 2
    if key[0] not in SECTIONS or not 2 <= len(key) <= length or not all(key):
        raise ConfigError(f"unknown flag {name!r}. {nearest(name, [*core_keys(), *alias_names()])}")
    return key


def _opposite(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}: it should be True or False")
    return not value


def _check_fixed(name: str, value: Any) -> None:
    if name not in FIXED:
        raise ConfigError(f"unknown flag {name!r}. {nearest(name, [*alias_names(), *core_keys()])}")
    same = [one for one in FIXED[name].accepted if type(one) is type(value) and one == value]
    if not same:
        raise ConfigError(f"{name} is {value!r}: {FIXED[name].otherwise}")


def _put(values: dict[Key, Given], key: Key, given: Given) -> None:
    other = values.get(key)
    if other is not None and other.value != given.value:
        raise ConfigError(
            f"{given.origin} sets {dotted(key)} to {given.value!r}, but {other.origin} sets it to "
            f"{other.value!r}; leave one of them out"
        )
    values[key] = given


def _edit(
    values: dict[Key, Given], written: Mapping[Key, Given], name: str, edit: StackEdit | None
) -> None:
    if edit is None:
        return
    for key, value in edit.settings.items():
        _put(values, key, Given(value, _flag(name)))
    other = written.get(edit.key)
    if other is None:
        before = values[edit.key].value if edit.key in values else _default(edit.key)
        values[edit.key] = Given(edit.apply(before), _flag(name))
    elif isinstance(other.value, list) and not edit.agrees(other.value):
        raise ConfigError(
            f"{_flag(name)} wants {edit.wish} in {dotted(edit.key)}, but {other.origin} sets it to "
            f"{other.value!r}; change one of them"
        )


def _default(key: Key) -> list[str]:
    stack: list[str] = getattr(SECTIONS[key[0]](), key[1])
    return stack
