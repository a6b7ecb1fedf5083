"""Scheduler stacks from what a test hands over: a plugin class, or a factory of plugins."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jackfield.core.api import Discipline, PolicyContext
from jackfield.core.testing.engines import HOOKS

Factory = Callable[[PolicyContext], Sequence[Any]]


class Stack(NamedTuple):
    """Disciplines from the root to the leaf, and advisors by name."""

    disciplines: Sequence[Discipline[Any]]
    advisors: Mapping[str, Any]


def factory_of(policy: type[Any] | Factory) -> Factory:
    """A plugin class becomes a factory of one plugin with its default configuration."""
    if not isinstance(policy, type):
        return policy
    cls: Any = policy
    return lambda context: [cls(cls.Config(), context)]


def build(policy: type[Any] | Factory, context: PolicyContext) -> Stack:
    """New plugins, sorted by what they do; one that orders and limits is in both places."""
    plugins = list(factory_of(policy)(context))
    disciplines = [plugin for plugin in plugins if isinstance(plugin, Discipline)]
    advisors = {
        type(plugin).__name__.lower(): plugin
        for plugin in plugins
        if any(hasattr(plugin, hook) for hook in HOOKS)
    }
    strange = [plugin for plugin in plugins if plugin not in disciplines]
    for plugin in strange:
        assert plugin in advisors.values(), f"{plugin!r} neither orders nor limits"
    return Stack(disciplines, advisors)
