"""The configuration file: TOML, with the line of each value for messages."""

import re
import tomllib
from pathlib import Path
from typing import Any

from jackfield.core.api import ConfigError
from jackfield.core.host.layers import flatten
from jackfield.core.host.origin import Given, Key, Layer, Origin

HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$")
NAME = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
ENTRY = re.compile(rf"\s*({NAME}(?:\s*\.\s*{NAME})*)\s*=")


def read_file(path: Path) -> dict[Key, Given]:
    """The values of the file. Raises `ConfigError` naming file and line of what is no TOML."""
    text = _text(path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    lines = _lines(text)
    return {
        key: Given(value, Origin(Layer.FILE, _place(path, key, lines)))
        for key, value in flatten(table).items()
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the configuration file {path} cannot be read: {reason}") from error


def _place(path: Path, key: Key, lines: dict[Key, int]) -> str:
    for end in range(len(key), 0, -1):
        if key[:end] in lines:
            return f"{path}:{lines[key[:end]]}"
    return str(path)


def _lines(text: str) -> dict[Key, int]:
    """Where keys and tables start. Found line by line, which is enough for a hint in a message."""
    lines: dict[Key, int] = {}
    table: Key = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := HEADER.match(line):
            table = _parts(header[1])
            for end in range(1, len(table) + 1):
                lines.setdefault(table[:end], number)
        elif entry := ENTRY.match(line):
            parts = _parts(entry[1])
            for end in range(1, len(parts) + 1):
                lines.setdefault(table + parts[:end], number)
    return lines


def _parts(name: str) -> Key:
    return tuple(part.strip().strip("\"'") for part in name.split("."))


def parse_value(text: str) -> Any:
    """A value as TOML writes it; what is no TOML is the text itself."""
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text
