"""Laws as items of a pytest run, for the plugin that an option names."""

import json
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pydantic import ValidationError

from jackfield.core.api import API_VERSION, PluginError, PolicyConfig
from jackfield.core.host.contract import check_class, config_class
from jackfield.core.host.discover import Found, discover
from jackfield.core.host.loader import load
from jackfield.core.testing.laws import laws_of
from jackfield.core.testing.stacks import Factory

if TYPE_CHECKING:
    from jackfield.core.testing.cache_stacks import MakeCache

KINDS = ("scheduler", "cache")


class AnyLaw(Protocol):
    """What the laws of all kinds of plugins have in common. check: takes a factory."""

    @property
    def name(self) -> str: ...
    @property
    def says(self) -> str: ...
    @property
    def look(self) -> str: ...
    @property
    def check(self) -> Callable[[Any, int], None]: ...


class LawItem(pytest.Item):
    """One law of one plugin."""

    def __init__(self, *, law: AnyLaw, make: Any, examples: int, **more: Any) -> None:
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
        """Where it is from: the plugin."""
        return self.path, None, self.nodeid


class Laws(pytest.Collector):
    """All laws of one plugin."""

    def __init__(self, *, laws: Iterable[AnyLaw], make: Any, examples: int, **more: Any) -> None:
        super().__init__(**more)
        self._laws = laws
        self._make = make
        self._examples = examples

    def collect(self) -> Iterator[LawItem]:
        """In the order in which a broken one explains most."""
        for law in self._laws:
            yield LawItem.from_parent(
                self, name=law.name, law=law, make=self._make, examples=self._examples
            )


def items_of(session: pytest.Session) -> list[pytest.Item]:
    """The laws for the plugins that the options name."""
    named = [kind for kind in KINDS if session.config.getoption(f"--jackfield-{kind}") is not None]
    if len(named) > 1 and session.config.getoption("--jackfield-config") is not None:
        raise pytest.UsageError(
            "--jackfield-config is a section of one plugin; name either a scheduler or a cache"
        )
    return [item for kind in named for item in _items(session, kind)]


def _items(session: pytest.Session, kind: str) -> list[pytest.Item]:
    name = session.config.getoption(f"--jackfield-{kind}")
    examples = session.config.getoption("--jackfield-examples")
    text = session.config.getoption("--jackfield-config")
    try:
        cls = find(name, kind)
        make: Any = (configured if kind == "scheduler" else configured_cache)(cls, text)
    except PluginError as error:
        raise pytest.UsageError(f"--jackfield-{kind} {name}: {error}") from error
    laws: Iterable[AnyLaw] = (laws_of if kind == "scheduler" else _cache_laws)(make)
    collector = Laws.from_parent(
        session, name=name, nodeid=f"jackfield[{name}]", laws=laws, make=make, examples=examples
    )
    return list(collector.collect())


def _cache_laws(make: "MakeCache") -> Iterable[AnyLaw]:
    # Laws of schedulers do not wait for torch, which these need.
    from jackfield.core.testing.cache_laws import cache_laws_of, check_declaration

    try:
        check_declaration(make)
    except AssertionError as error:
        raise pytest.UsageError(f"--jackfield-cache: {error}") from error
    return cache_laws_of(make)


def find(name: str, kind: str = KINDS[0]) -> type[Any]:
    """The class that "name", "distribution:name", "module:Class" or "module.Class" means.

    Raises `PluginError` or `pytest.UsageError`.
    """
    catalogue = discover(f"{kind}s")
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    if catalogue.named(name) or catalogue.foreign_named(name) or not module:
        found: type[Any] = load(f"{kind}s", name, catalogue).cls
        return found
    try:
        given = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(
            f"--jackfield-{kind} {name}: no installed plugin has this name, and importing it "
            f"gave {type(error).__name__}: {error}; install the distribution, or start with "
            f"`python -m pytest` from the folder of the module"
        ) from error
    value = f"{module}:{attribute}"
    described = Found(f"{kind}s", name, value, "no distribution", "", API_VERSION, "")
    return check_class(described, given)


def configured(cls: type[Any], text: str | None) -> Factory:
    """A factory of the scheduler plugin with the values of a JSON object as its section."""
    make: Callable[..., Any] = cls
    config = _section(cls, text)
    return lambda context: [make(config, context)]


def configured_cache(cls: type[Any], text: str | None) -> "MakeCache":
    """The same of a cache plugin."""
    make: Callable[..., Any] = cls
    config = _section(cls, text)
    return lambda: make(config)


def _section(cls: type[Any], text: str | None) -> PolicyConfig:
    try:
        return config_class(cls).model_validate(json.loads(text or "{}"))
    except (ValidationError, json.JSONDecodeError) as error:
        raise pytest.UsageError(
            f"--jackfield-config {text or '{}'} is no section of {cls.__name__}: {error}"
        ) from error
