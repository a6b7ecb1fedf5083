"""The plugins that a configuration names: imported, checked, and with their sections validated."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.core.api import ConfigError, EvictorPlugin, PluginConflict, PolicyConfig
from jackfield.core.host.config import CacheConfig, Config
from jackfield.core.host.contract import limits
from jackfield.core.host.disciplines import load_order
from jackfield.core.host.discover import Catalogues, Found
from jackfield.core.host.loader import Loaded, load
from jackfield.core.host.ordering import Ordering
from jackfield.core.host.origin import Layer, Origin, dotted
from jackfield.core.host.plugin_tables import Origins, PluginTables


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
    """All selected plugins, in the order of the configuration.

    order: the disciplines as the stack nests them, leaves included, each as often as it occurs.
    """

    order: Ordering[Selected]
    advisors: tuple[Selected, ...]
    caches: tuple[Selected, ...]
    evictors: tuple[Selected, ...]
    kernels: tuple[Selected, ...]

    @property
    def disciplines(self) -> tuple[Selected, ...]:
        """Each selected discipline once."""
        return tuple({one.found: one for one in self.order.each()}.values())

    @property
    def all(self) -> tuple[Selected, ...]:
        """Every selected plugin."""
        return (
            *self.disciplines, *self.advisors, *self.caches, *self.evictors, *self.kernels
        )  # fmt: skip


def select(config: Config, catalogues: Catalogues, origins: Origins | None = None) -> Selection:
    """Import what the configuration names, nothing else, and validate every plugin's section.

    origins: where values came from, for messages. Raises `PluginError`s and `ConfigError`.
    """
    order = load_order(config.scheduler.stack, catalogues["schedulers"])
    disciplines = list({plugin.found: plugin for plugin in order.each()}.values())
    advisors = _advisors(config.scheduler.advisors, catalogues)
    caches = _all("caches", config.cache.stack, catalogues)
    evictors = _evictors(config.cache, catalogues)
    kernels = _all("kernels", config.kernel.stack, catalogues)
    if not kernels:
        raise ConfigError("kernel.stack is empty: it needs a plugin that serves attention")
    _check_both(disciplines, advisors)
    tables = PluginTables(config, origins or {})
    tables.check(
        {
            "scheduler": [*disciplines, *advisors],
            "cache": [*caches, *evictors],
            "kernel": kernels,
        }
    )
    return Selection(
        order.map(lambda plugin: _with_settings(tables, "scheduler", [plugin])[0]),
        _with_settings(tables, "scheduler", advisors),
        _with_settings(tables, "cache", caches),
        _with_settings(tables, "cache", evictors),
        _with_settings(tables, "kernel", kernels),
    )


def select_server(
    config: Config, catalogues: Catalogues, origins: Origins | None = None
) -> tuple[Selected, ...]:
    """The same for plugins of the HTTP process, which no engine needs."""
    if not config.server.identify:
        raise ConfigError(
            "server.identify is empty, so that nobody would be let in; name a plugin in it, such "
            "as 'keys'"
        )
    plugins = _all("server", config.server.identify, catalogues)
    tables = PluginTables(config, origins or {})
    tables.check({"server": plugins})
    return _with_settings(tables, "server", plugins)


def select_all(
    config: Config, catalogues: Catalogues, origins: Origins | None = None
) -> tuple[Selected, ...]:
    """Every plugin that the configuration names, in whichever process it lives."""
    engine = select(config, catalogues, origins).all
    return (*engine, *select_server(config, catalogues, origins))


def _with_settings(
    tables: PluginTables, section: str, plugins: list[Loaded]
) -> tuple[Selected, ...]:
    return tuple(Selected(section, plugin, tables.settings(section, plugin)) for plugin in plugins)


def _all(kind: str, names: Iterable[str], catalogues: Catalogues) -> list[Loaded]:
    return [load(kind, name, catalogues[kind]) for name in names]


def _evictors(config: CacheConfig, catalogues: Catalogues) -> list[Loaded]:
    """Those that `cache.eviction` names."""
    found = _all("caches", config.all_evictors, catalogues)
    for plugin in found:
        if not issubclass(plugin.cls, EvictorPlugin):
            raise ConfigError(
                f"cache.eviction names {plugin.found}, which orders no blocks; name it in "
                f"cache.stack"
            )
    return found


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


def effective(
    selected: Sequence[Selected], origins: Origins
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Values and origins of the plugins' own sections, their defaults included, by dotted key."""
    values: dict[str, Any] = {}
    found: dict[str, Origin] = {}
    for one in selected:
        for key, value in one.settings.model_dump(mode="json").items():
            name = dotted((one.section, one.found.name, key))
            values[name] = value
            default = Origin(Layer.PLUGIN_DEFAULT, f"{one.found.distribution} {one.found.version}")
            found[name] = origins.get(name, default)
    return values, found
