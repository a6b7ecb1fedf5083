"""Where a value of the configuration came from."""

from enum import StrEnum
from typing import Any, NamedTuple

Key = tuple[str, ...]
"""The path of a value: section and key, or section, plugin and key."""


class Layer(StrEnum):
    """Where values come from, from the weakest to the strongest."""

    DEFAULT = "default"
    PLUGIN_DEFAULT = "plugin default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(NamedTuple):
    """A layer, and which file and line, variable or flag of it."""

    layer: Layer
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.detail}".rstrip()


class Given(NamedTuple):
    """A value that somebody set, and where."""

    value: Any
    origin: Origin


DEFAULT = Origin(Layer.DEFAULT)


def dotted(key: Key) -> str:
    """The key as users write it."""
    return ".".join(key)
