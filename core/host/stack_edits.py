"""Aliases that edit a stack: what each wants in it, and whether a stack already says so."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jackfield.core.api import ConfigError
from jackfield.core.host.ordering import names_in
from jackfield.core.host.origin import Key

GIB = 2**30
SCHEDULER: Key = ("scheduler", "stack")
CACHE: Key = ("cache", "stack")
KV_FORMATS = {"fp8": "e4m3", "fp8_e4m3": "e4m3", "fp8_e5m2": "e5m2", "int8": "int8"}


class StackEdit(NamedTuple):
    """How an alias changes a default stack, and whether it agrees with one that was written down.

    wish: for messages. settings: further values that the alias sets.
    """

    key: Key
    wish: str
    apply: Callable[[list[str]], list[str]]
    agrees: Callable[[list[str]], bool]
    settings: Mapping[Key, Any]


def _has(stack: list[Any], plugin: str) -> bool:
    return any(entry.rpartition(":")[2] == plugin for entry in names_in(stack))


def _with(plugin: str, settings: Mapping[Key, Any]) -> StackEdit:
    return StackEdit(
        CACHE,
        repr(plugin),
        lambda stack: stack if _has(stack, plugin) else [*stack, plugin],
        lambda stack: _has(stack, plugin),
        settings,
    )


def _without(plugin: str) -> StackEdit:
    return StackEdit(
        CACHE,
        f"no {plugin!r}",
        lambda stack: [entry for entry in stack if entry != plugin],
        lambda stack: not _has(stack, plugin),
        {},
    )


def scheduling_policy(value: Any) -> StackEdit:
    """The scheduler stack of that name."""
    if value == "fcfs":
        return StackEdit(
            SCHEDULER, "only 'fcfs'", lambda _: ["fcfs"], lambda s: s in ([], ["fcfs"]), {}
        )
    if value == "priority":
        return StackEdit(
            SCHEDULER,
            "'priority'",
            lambda _: ["priority", "fcfs"],
            lambda stack: _has(stack, "priority"),
            {},
        )
    raise ConfigError(
        f"scheduling_policy is {value!r}: should be 'fcfs' or 'priority'; other policies are named "
        "in scheduler.stack"
    )


def enable_prefix_caching(value: Any) -> StackEdit:
    """The cache stack with or without "prefix"."""
    if not isinstance(value, bool):
        raise ConfigError(f"enable_prefix_caching is {value!r}: should be True or False")
    return _with("prefix", {}) if value else _without("prefix")


def kv_cache_dtype(value: Any) -> StackEdit | None:
    """The cache stack with "fp8" and its format; "auto" has no opinion."""
    if value == "auto":
        return None
    if isinstance(value, str) and value in KV_FORMATS:
        return _with("fp8", {("cache", "fp8", "format"): KV_FORMATS[value]})
    known = ", ".join(map(repr, ("auto", *KV_FORMATS)))
    raise ConfigError(f"kv_cache_dtype is {value!r}: should be one of {known}")


def swap_space(value: Any) -> StackEdit:
    """The cache stack with "swap" and its memory, or without it. In GiB."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**33:
        raise ConfigError(f"swap_space is {value!r}: should be a number of GiB, 0 or more")
    if value == 0:
        return _without("swap")
    return _with("swap", {("cache", "swap", "memory"): int(value * GIB)})


STACK_ALIASES: Mapping[str, Callable[[Any], StackEdit | None]] = {
    "scheduling_policy": scheduling_policy,
    "enable_prefix_caching": enable_prefix_caching,
    "kv_cache_dtype": kv_cache_dtype,
    "swap_space": swap_space,
}
