"""The plugins of one engine, and their hooks compiled for the loop."""

from collections.abc import Callable, Iterable
from inspect import isasyncgenfunction, iscoroutinefunction, signature
from typing import Any, NamedTuple

import pluggy

from jackfield.core.api import (
    PROJECT,
    SPECIFICATIONS,
    PluginConflict,
    PluginContractError,
)
from jackfield.core.api.errors import nearest
from jackfield.core.host.discover import Found
from jackfield.core.host.marks import hook_marks

EXCLUSIVE = ("victims", "plan", "layout", "encode", "identity")
"""Hooks that one plugin at most may implement."""
PLAIN_ONLY = ("hookwrapper", "wrapper", "tryfirst", "trylast")
"""Options of a mark that would let one plugin stand before another."""


class Implementation(NamedTuple):
    """One plugin's answer to a hook. `call` takes the hook's arguments by position, in order."""

    plugin: str
    call: Callable[..., Any]


class Manager:
    """Registers plugin instances, checks their hooks, and hands the loop plain callables.

    The order of registration is the order of the implementations.
    """

    def __init__(self) -> None:
        self._pluggy = pluggy.PluginManager(PROJECT)
        self._found: dict[str, Found] = {}
        for specifications in SPECIFICATIONS.values():
            for specification in specifications:
                self._pluggy.add_hookspecs(specification)

    def register(self, instance: Any, found: Found) -> None:
        """Add a plugin under "kind:name". Raises `PluginContractError` for a wrong hook.

        Further instances of one plugin, at other places of a stack, are numbered.
        """
        name = f"{found.kind}:{found.name}"
        if self._found.get(name) == found:
            same = sum(other == found for other in self._found.values())
            name = f"{name}#{same + 1}"
        for method, options in hook_marks(type(instance)).items():
            _check_hook(found, method, getattr(instance, method), options)
        self._found[name] = found
        try:
            self._pluggy.register(instance, name)
            self._pluggy.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginContractError(f"{found}: {' '.join(str(error).split())}") from error

    def check(self) -> None:
        """Raise `PluginConflict` if two plugins implement a hook that only one may own."""
        for hook in EXCLUSIVE:
            owners = [self._found[entry.plugin_name] for entry in self._implementations(hook)]
            if len(owners) > 1:
                raise PluginConflict(
                    f"only one plugin may implement the hook {hook!r}, but these do: "
                    f"{' and '.join(map(str, owners))}; select one of them"
                )

    def implementations(self, hook: str) -> list[Implementation]:
        """Who implements the hook, in the order of the configuration; empty = it costs nothing."""
        wanted = tuple(getattr(self._pluggy.hook, hook).spec.argnames)
        return [
            Implementation(self._found[entry.plugin_name].name, _positional(entry, wanted))
            for entry in self._implementations(hook)
        ]

    def hooks_of(self, found: Found) -> list[str]:
        """The hooks that a registered plugin implements."""
        instance = self._pluggy.get_plugin(f"{found.kind}:{found.name}")
        return sorted(caller.name for caller in self._pluggy.get_hookcallers(instance) or [])

    def _implementations(self, hook: str) -> list[Any]:
        order = list(self._found)
        entries = getattr(self._pluggy.hook, hook).get_hookimpls()
        return sorted(entries, key=lambda entry: order.index(entry.plugin_name))


def _positional(entry: Any, wanted: tuple[str, ...]) -> Callable[..., Any]:
    """The bound method itself, or, if it declares fewer arguments, a call that hands over those."""
    function: Callable[..., Any] = entry.function
    if entry.argnames == wanted:
        return function
    places = [wanted.index(name) for name in entry.argnames]

    def call(*arguments: Any) -> Any:
        return function(*(arguments[place] for place in places))

    return call


def _hooks(kinds: Iterable[str]) -> dict[str, Callable[..., Any]]:
    return {
        name: getattr(specification, name)
        for kind in kinds
        for specification in SPECIFICATIONS.get(kind, ())
        for name in vars(specification)
        if hasattr(getattr(specification, name), f"{PROJECT}_spec")
    }


def _check_hook(found: Found, method: str, function: Any, options: Any) -> None:
    """Raise `PluginContractError` that names the plugin, the hook, and what to write instead."""
    hook = options.get("specname") or method
    definition = f"{method}{signature(function)}"
    known = _hooks((found.kind,))
    if hook not in known:
        if options.get("optionalhook") and hook not in _hooks(SPECIFICATIONS):
            return
        hint = nearest(hook, known)
        raise PluginContractError(
            f"{found} marks {definition}, but there is no hook {hook!r}. {hint}"
        )
    for option in PLAIN_ONLY:
        if options.get(option):
            raise PluginContractError(
                f"{found}: {definition} is marked with {option}; a hook must be plain, each "
                f"implementation is called alone and none may put itself before another"
            )
    if iscoroutinefunction(function) or isasyncgenfunction(function):
        raise PluginContractError(f"{found}: {definition} is asynchronous; hooks are synchronous")
    _check_arguments(found, hook, function, known[hook])


def _check_arguments(found: Found, hook: str, function: Any, specification: Any) -> None:
    arguments = [name for name in signature(specification).parameters if name != "self"]
    for parameter in signature(function).parameters.values():
        optional = parameter.default is not parameter.empty
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD and not optional:
            problem = f"declares {parameter}"
        elif parameter.name not in arguments and not optional:
            problem = f"wants the argument {parameter.name!r}. {nearest(parameter.name, arguments)}"
        else:
            continue
        raise PluginContractError(
            f"{found}: {hook}{signature(function)} does not fit the hook "
            f"{hook}({', '.join(arguments)}): it {problem}"
        )
