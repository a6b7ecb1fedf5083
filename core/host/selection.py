"""The plugins that a configuration names: imported, checked, and with their sections validated."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jackfield.core.api import ConfigError, Discipline, PluginConflict, PolicyConfig
from jackfield.core.host.config import Config
from jackfield.core.host.contract import limits, orders
from jackfield.core.host.discover import Catalogues, Found
from jackfield.core.host.loader import Loaded, load
from jackfield.core.host.origin import Layer, Origin, dotted
from jackfield.core.host.plugin_tables import Origins, PluginTables

LEAF = "fcfs"


@dataclass(frozen=True)
class Selected:
    """One selected plugin, with its validated section."""

    section: str
    loaded: Loaded
    settings: PolicyConfig

    @property
    def found(self) -> Found:
        """Its entry point."""
        return self.loaded.found


@dataclass(frozen=True)
class Selection:
    """All selected plugins, in the order of the configuration. The leaf is in `disciplines`."""

    disciplines: tuple[Selected, ...]
    advisors: tuple[Selected, ...]
    caches: tuple[Selected, ...]
    kernels: tuple[Selected, ...]

    @property
    def all(self) -> tuple[Selected, ...]:
        """Every selected plugin."""
        return (*self.disciplines, *self.advisors, *self.caches, *self.kernels)


def select(config: Config, catalogues: Catalogues, origins: Origins | None = None) -> Selection:
    """Import what the configuration names, nothing else, and validate every plugin's section.

    origins: where values came from, for messages. Raises `PluginError`s and `ConfigError`.
    """
    disciplines = _stack(config.scheduler.stack, catalogues)
    advisors = _advisors(config.scheduler.advisors, catalogues)
    caches = _all("caches", config.cache.stack, catalogues)
    kernels = _all("kernels", config.kernel.stack, catalogues)
    if not kernels:
        raise ConfigError("kernel.stack is empty: it needs a plugin that serves attention")
    _check_both(disciplines, advisors)
    tables = PluginTables(config, origins or {})
    tables.check({"scheduler": [*disciplines, *advisors], "cache": caches, "kernel": kernels})
    return Selection(
        _with_settings(tables, "scheduler", disciplines),
        _with_settings(tables, "scheduler", advisors),
        _with_settings(tables, "cache", caches),
        _with_settings(tables, "kernel", kernels),
    )


def _with_settings(
    tables: PluginTables, section: str, plugins: list[Loaded]
) -> tuple[Selected, ...]:
    return tuple(Selected(section, plugin, tables.settings(section, plugin)) for plugin in plugins)


def _all(kind: str, names: Iterable[str], catalogues: Catalogues) -> list[Loaded]:
    return [load(kind, name, catalogues[kind]) for name in names]


def _stack(names: list[str], catalogues: Catalogues) -> list[Loaded]:
    """The disciplines from the root to the leaf, which is fcfs if nobody else orders there."""
    found = _all("schedulers", names, catalogues)
    for plugin in found:
        if not orders(plugin.cls):
            raise ConfigError(
                f"scheduler.stack names {plugin.found}, which orders nothing; name it in "
                f"scheduler.advisors"
            )
    if found and (found[-1].found.name == LEAF or _orders_leaf(found[-1].cls)):
        return found
    if any(plugin.found.name == LEAF for plugin in found):
        raise ConfigError(f"scheduler.stack should end in {LEAF!r}, which orders only in a leaf")
    return [*found, load("schedulers", LEAF, catalogues["schedulers"])]


def _orders_leaf(cls: Any) -> bool:
    """Whether it orders requests, not only classes of them."""
    return cls.key is not Discipline.key or cls.keep is not Discipline.keep


def _advisors(names: list[str], catalogues: Catalogues) -> list[Loaded]:
    found = _all("schedulers", names, catalogues)
    for plugin in found:
        if not limits(plugin.cls):
            raise ConfigError(
                f"scheduler.advisors names {plugin.found}, which implements no hook; name it in "
                f"scheduler.stack"
            )
    return found


def _check_both(disciplines: list[Loaded], advisors: list[Loaded]) -> None:
    ordering = {plugin.found.name for plugin in disciplines}
    for plugin in advisors:
        if plugin.found.name in ordering:
            raise PluginConflict(
                f"{plugin.found} is in scheduler.stack and in scheduler.advisors; name it in the "
                f"stack only, its hooks are called from there too"
            )


def effective(selection: Selection, origins: Origins) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Values and origins of the plugins' own sections, their defaults included, by dotted key."""
    values: dict[str, Any] = {}
    found: dict[str, Origin] = {}
    for one in selection.all:
        for key, value in one.settings.model_dump(mode="json").items():
            name = dotted((one.section, one.found.name, key))
            values[name] = value
            default = Origin(Layer.PLUGIN_DEFAULT, f"{one.found.distribution} {one.found.version}")
            found[name] = origins.get(name, default)
    return values, found
