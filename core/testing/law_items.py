"""Laws as items of a pytest run: the option `--jackfield-scheduler` names the policy."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from pydantic import ValidationError

from jackfield.core.api import API_VERSION, PluginError
from jackfield.core.host.contract import check_class, config_class
from jackfield.core.host.discover import Found, discover
from jackfield.core.host.loader import load
from jackfield.core.testing.laws import Law, laws_of
from jackfield.core.testing.stacks import Factory


class LawItem(pytest.Item):
    """One law of one policy."""

    def __init__(self, *, law: Law, make: Factory, examples: int, **more: Any) -> None:
        super().__init__(**more)
        self._law = law
        self._make = make
        self._examples = examples

    def runtest(self) -> None:
        """Try it on as many lives as were asked for."""
        self._law.check(self._make, self._examples)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        """The law, what is wrong, the shortest life in which it is, and where to look."""
        error = excinfo.value
        if not isinstance(error, AssertionError):
            return super().repr_failure(excinfo, style)
        lines = [f"law:     {self._law.says}", f"broken:  {error}"]
        lines += [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
        return "\n".join([*lines, f"look at: {self._law.look}"])

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Where it is from: the policy."""
        return self.path, None, self.nodeid


class Laws(pytest.Collector):
    """All laws of one policy."""

    def __init__(self, *, make: Factory, examples: int, **more: Any) -> None:
        super().__init__(**more)
        self._make = make
        self._examples = examples

    def collect(self) -> Iterator[LawItem]:
        """In the order in which a broken one explains most."""
        for law in laws_of(self._make):
            yield LawItem.from_parent(
                self, name=law.name, law=law, make=self._make, examples=self._examples
            )


def items_of(session: pytest.Session) -> list[pytest.Item]:
    """The laws for the policy that the options name."""
    name = session.config.getoption("--jackfield-scheduler")
    examples = session.config.getoption("--jackfield-examples")
    try:
        make = configured(find(name), session.config.getoption("--jackfield-config"))
    except PluginError as error:
        raise pytest.UsageError(f"--jackfield-scheduler {name}: {error}") from error
    laws = Laws.from_parent(
        session, name=name, nodeid=f"jackfield[{name}]", make=make, examples=examples
    )
    return list(laws.collect())


def find(name: str) -> type[Any]:
    """The class that "name", "distribution:name", "module:Class" or "module.Class" means.

    Raises `PluginError` or `pytest.UsageError`.
    """
    catalogue = discover("schedulers")
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    if catalogue.named(name) or catalogue.foreign_named(name) or not module:
        found: type[Any] = load("schedulers", name, catalogue).cls
        return found
    try:
        given = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(
            f"--jackfield-scheduler {name}: no installed plugin has this name, and importing it "
            f"gave {type(error).__name__}: {error}; install the distribution, or start with "
            f"`python -m pytest` from the folder of the module"
        ) from error
    return check_class(_described(name, module, attribute), given)


def _described(name: str, module: str, attribute: str) -> Found:
    value = f"{module}:{attribute}"
    return Found("schedulers", name, value, "no distribution", "", API_VERSION, "")


def configured(cls: type[Any], text: str | None) -> Factory:
    """A factory of the plugin with the values of a JSON object as its section."""
    make: Callable[..., Any] = cls
    try:
        config = config_class(cls).model_validate(json.loads(text or "{}"))
    except (ValidationError, json.JSONDecodeError) as error:
        raise pytest.UsageError(
            f"--jackfield-config {text or '{}'} is no section of {cls.__name__}: {error}"
        ) from error
    return lambda context: [make(config, context)]
