"""The sections of plugins: which belong to whom, and whether they are valid."""

from collections.abc import Mapping

from jackfield.core.api import ConfigError, PolicyConfig
from jackfield.core.api.errors import nearest
from jackfield.core.host.config import Config, PluginSections
from jackfield.core.host.contract import config_class
from jackfield.core.host.loader import Loaded
from jackfield.core.host.origin import Key, Origin, dotted
from jackfield.core.host.validation import validate

Origins = Mapping[str, Origin]
STACKS = {"server": "server.identify"}
"""Sections whose stack has a name of its own."""


class PluginTables:
    """The tables of plugins in the configuration."""

    def __init__(self, config: Config, origins: Origins) -> None:
        self._sections: Mapping[str, PluginSections] = {
            "scheduler": config.scheduler, "cache": config.cache, "kernel": config.kernel,
            "server": config.server,
        }  # fmt: skip
        self._origins: dict[Key, Origin] = {
            tuple(name.split(".", 2)): origin for name, origin in origins.items()
        }

    def check(self, selected: Mapping[str, list[Loaded]]) -> None:
        """Raise `ConfigError` for a table that belongs to no selected plugin."""
        for section, plugins in selected.items():
            names = {plugin.found.name for plugin in plugins}
            for name in self._sections[section].plugin_tables:
                if name not in names:
                    self._refuse(section, name, names)

    def _refuse(self, section: str, name: str, names: set[str]) -> None:
        places = (str(o) for k, o in self._origins.items() if k[:2] == (section, name))
        place = next((f" (from {origin})" for origin in places), "")
        known = names | set(type(self._sections[section]).model_fields)
        raise ConfigError(
            f"{dotted((section, name))}{place} is the section of a plugin, but no plugin "
            f"{name!r} is in {STACKS.get(section, f'the {section} stack')}. {nearest(name, known)}"
        )

    def settings(self, section: str, plugin: Loaded) -> PolicyConfig:
        """The plugin's own section, validated by its `Config`."""
        name = plugin.found.name
        table = self._sections[section].plugin_tables.get(name, {})
        owner = str(plugin.found)
        return validate(config_class(plugin.cls), table, (section, name), self._origins, owner)
