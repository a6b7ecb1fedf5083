"""Tables flattened into single values, so that layers merge value by value."""

from collections.abc import Mapping
from typing import Any

from jackfield.core.host.config import SECTIONS, holds_plugins
from jackfield.core.host.origin import Given, Key


def flatten(table: Mapping[str, Any]) -> dict[Key, Any]:
    """Key -> value. A value that is a table itself stays whole; an empty plugin table stays too."""
    values: dict[Key, Any] = {}
    for section, content in table.items():
        if section not in SECTIONS or not isinstance(content, Mapping):
            values[(section,)] = content
            continue
        for name, value in content.items():
            values.update(_entry(section, name, value))
    return values


def _entry(section: str, name: str, value: Any) -> dict[Key, Any]:
    if value and is_plugin_table(section, name, value):
        return {(section, name, key): inner for key, inner in value.items()}
    return {(section, name): value}


def is_plugin_table(section: str, name: str, value: Any) -> bool:
    """Whether the entry of a section is the table of a plugin rather than a key of the core."""
    is_core = name in SECTIONS[section].model_fields
    return isinstance(value, Mapping) and holds_plugins(section) and not is_core


def nest(values: Mapping[Key, Any]) -> dict[str, Any]:
    """The tables again. Of a table and a plain value at one place the plain value stays."""
    tables: dict[str, Any] = {}
    for key in sorted(values, key=len):
        place: Any = tables
        for part in key[:-1]:
            place = place.setdefault(part, {}) if isinstance(place, dict) else place
        if isinstance(place, dict):
            place[key[-1]] = _copy(values[key])
    return tables


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def merge(*layers: Mapping[Key, Given]) -> dict[Key, Given]:
    """All values; of one key that of the last layer."""
    merged: dict[Key, Given] = {}
    for layer in layers:
        merged.update(layer)
    return merged
