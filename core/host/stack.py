"""The plugins of one engine, built: what the configuration names and nothing else."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from jackfield.core.api import (
    CacheAxis,
    CachePlugin,
    ConfigError,
    Discipline,
    EvictorPlugin,
    KernelPlugin,
    ModelNotFound,
    PluginConflict,
    PluginLoadError,
    PluginNotFound,
    PolicyContext,
)
from jackfield.core.host.config import Config
from jackfield.core.host.discover import Catalogue, Catalogues, Found, discover, discover_all
from jackfield.core.host.fingerprint import Fingerprint
from jackfield.core.host.loader import Loaded, cause, load
from jackfield.core.host.manager import Manager
from jackfield.core.host.ordering import Ordering, branches_of
from jackfield.core.host.plugin_tables import Origins
from jackfield.core.host.selection import Selected, Selection, select

T = TypeVar("T")
EXCLUSIVE_AXES = (CacheAxis.ALLOCATOR, CacheAxis.ENCODING, CacheAxis.IDENTITY)
REQUIRED_AXES = (CacheAxis.ALLOCATOR,)


@dataclass(frozen=True)
class Named(Generic[T]):
    """An instance of a plugin, under the name that the configuration uses."""

    name: str
    plugin: T
    found: Found


@dataclass(frozen=True)
class Stack:
    """All plugins of one engine.

    order: the disciplines as the stack nests them, one instance for each place. branches: the
    scheduler stack as it is written, if it branches. versions: who is active, for the start
    summary.
    """

    order: Ordering[Named[Discipline[Any]]]
    branches: str
    advisors: tuple[Named[Any], ...]
    caches: Mapping[CacheAxis, tuple[Named[CachePlugin], ...]]
    evictors: Mapping[str, EvictorPlugin]
    kernels: tuple[Named[KernelPlugin], ...]
    manager: Manager
    versions: tuple[Found, ...]

    @property
    def disciplines(self) -> tuple[Named[Discipline[Any]], ...]:
        """All disciplines, the upper ones first."""
        return tuple(self.order.each())

    def fingerprint(self) -> Fingerprint:
        """What every other process of this engine must have selected too."""
        return Fingerprint.of(self.versions, self.branches)


def build_stack(
    config: Config,
    *,
    make_context: Callable[[str], PolicyContext],
    catalogues: Catalogues | None = None,
    origins: Origins | None = None,
) -> Stack:
    """Import, validate and construct the selected plugins.

    make_context: called once per instance of a scheduler plugin with its name. catalogues: what
    is installed. origins: for messages. Every section is validated before the first plugin is
    constructed.
    """
    return build_caches(config, catalogues=catalogues, origins=origins).build(make_context)


@dataclass(frozen=True)
class Caches:
    """The first half of a stack: its cache plugins say what the scheduler's are told.

    All plugins are imported and their sections validated; those of the caches are constructed.
    """

    by_axis: Mapping[CacheAxis, tuple[Named[CachePlugin], ...]]
    manager: Manager
    _selection: Selection
    _branches: str

    def kernels(self) -> tuple[Named[KernelPlugin], ...]:
        """Construct those alone, for a process that decides nothing. Called in place of `build`."""
        return _build(self._selection.kernels, self.manager)

    def fingerprint(self) -> Fingerprint:
        """That of the stack that `build` makes."""
        return Fingerprint.of((one.found for one in self._selection.all), self._branches)

    def build(self, make_context: Callable[[str], PolicyContext]) -> Stack:
        """Construct all others. Called once."""
        selection, manager = self._selection, self.manager
        stack = Stack(
            order=selection.order.map(lambda one: _named(one, manager, make_context)),
            branches=self._branches,
            advisors=_build(selection.advisors, manager, make_context),
            caches=self.by_axis,
            evictors={one.name: one.plugin for one in _build(selection.evictors, manager)},
            kernels=_build(selection.kernels, manager),
            manager=manager,
            versions=tuple(one.found for one in selection.all),
        )
        manager.check()
        return stack


def build_caches(
    config: Config, *, catalogues: Catalogues | None = None, origins: Origins | None = None
) -> Caches:
    """Like `build_stack`, up to the cache plugins."""
    selection = select(config, catalogues or discover_all(), origins)
    manager = Manager()
    caches = _by_axis(_build(selection.caches, manager))
    return Caches(caches, manager, selection, branches_of(config.scheduler.stack))


def _build(
    selected: Iterable[Selected],
    manager: Manager,
    make_context: Callable[[str], PolicyContext] | None = None,
) -> tuple[Named[Any], ...]:
    return tuple(_named(one, manager, make_context) for one in selected)


def _named(
    one: Selected, manager: Manager, make_context: Callable[[str], PolicyContext] | None
) -> Named[Any]:
    extra = () if make_context is None else (make_context(one.found.name),)
    instance = construct(one, *extra)
    manager.register(instance, one.found)
    return Named(one.found.name, instance, one.found)


def construct(one: Selected, *context: PolicyContext) -> Any:
    """An instance of the plugin. Raises `PluginLoadError`, whatever its constructor raises."""
    try:
        return one.loaded.cls(one.settings, *context)
    except KeyboardInterrupt:
        raise
    except ConfigError as error:
        raise ConfigError(
            f"{one.section}.{one.found.name} is refused by {one.found}: {error}"
        ) from error
    except BaseException as error:  # like the import: a plugin must not end the host unexplained
        raise PluginLoadError(
            f"{one.found} cannot be constructed: {cause(error)}; uninstall it or choose another"
        ) from error


def _by_axis(
    caches: Iterable[Named[CachePlugin]],
) -> Mapping[CacheAxis, tuple[Named[CachePlugin], ...]]:
    grouped: dict[CacheAxis, tuple[Named[CachePlugin], ...]] = {}
    for cache in caches:
        grouped[cache.plugin.axis] = (*grouped.get(cache.plugin.axis, ()), cache)
    for misplaced in grouped.get(CacheAxis.EVICTION, ()):
        raise ConfigError(
            f"cache.stack names {misplaced.found}, which orders what is given up; name it in "
            f"cache.eviction, such as eviction.device = [{misplaced.name!r}]"
        )
    for axis in EXCLUSIVE_AXES:
        owners = grouped.get(axis, ())
        if len(owners) > 1:
            raise PluginConflict(
                f"cache.stack names more than one plugin of the axis {axis.value!r}: "
                f"{' and '.join(str(owner.found) for owner in owners)}; keep one of them"
            )
    for axis in REQUIRED_AXES:
        if axis not in grouped:
            raise ConfigError(
                f"cache.stack names no plugin of the axis {axis.value!r}; add one, such as 'paged'"
            )
    return grouped


def load_model_class(architecture: str, catalogue: Catalogue | None = None) -> Loaded:
    """The model plugin of an architecture. Raises `ModelNotFound` if there is none."""
    known = catalogue or discover("models")
    try:
        return load("models", architecture, known)
    except PluginNotFound as error:
        raise ModelNotFound(f"the architecture {architecture!r} has no plugin: {error}") from error
