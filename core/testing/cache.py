"""Checks of cache plugins: all laws of what one decides, alone and in engines."""

from typing import Any

from jackfield.core.api import CachePlugin
from jackfield.core.testing.cache_laws import cache_laws_of, check_declaration
from jackfield.core.testing.cache_stacks import MakeCache


def check_cache(plugin: type[CachePlugin] | CachePlugin | MakeCache, *, examples: int = 25) -> None:
    """Run every law of the hooks that the plugin has. See `cache_laws`. Takes seconds.

    Raises `AssertionError` with what is broken.

    plugin: the class, made with its default configuration; a function that makes instances; or one
    instance, which then serves many engines, one after another. examples: how many random lives
    each check tries.
    """
    make = maker(plugin)
    check_declaration(make)
    for law in cache_laws_of(make):
        law.check(make, examples)


def maker(plugin: Any) -> MakeCache:
    """Makes instances of whatever stands for a plugin."""
    if isinstance(plugin, type):
        cls: Any = plugin
        return lambda: cls(cls.Config())
    return (lambda: plugin) if isinstance(plugin, CachePlugin) else plugin
