"""Typed reading of the `quantization_config` of a config.json."""

from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from jackfield.core.api.errors import ModelError

T = TypeVar("T")
CONFIG = "config.json"
SOURCE = "jackfield_source"
"""The key of a section that is a file of its own, which it names."""


class QuantSection:
    """A mapping inside config.json, or a file of its own; null counts as absent. Raises ModelError
    naming the key."""

    def __init__(
        self, content: object, path: str = "quantization_config", file: str = CONFIG
    ) -> None:
        if not isinstance(content, Mapping):
            raise ModelError(f"{file}: {path} is {content!r}; expected a mapping.")
        self._content: Mapping[str, Any] = content
        alone = content.get(SOURCE)
        self._file, self._path = (file, path) if alone is None else (str(alone), "")

    def has(self, key: str) -> bool:
        return self._content.get(key) is not None

    def first(self, *keys: str) -> str:
        """The key that is there, of several that mean the same; else the first."""
        return next((key for key in keys if self.has(key)), keys[0])

    def one_of(self, key: str, known: Mapping[Any, T], default: Any = None) -> T:
        """What the key's value stands for."""
        value = self._content.get(key) if self.has(key) else default
        if isinstance(value, str | int | type(None)) and value in known:
            return known[value]
        return self.refuse(key, " or ".join(repr(name) for name in known if name is not None))

    def text(self, key: str, default: str) -> str:
        value = self._content.get(key) if self.has(key) else default
        return value if isinstance(value, str) else self.refuse(key, "a string")

    def flag(self, key: str, default: bool) -> bool:
        value = self._content.get(key) if self.has(key) else default
        return value if isinstance(value, bool) else self.refuse(key, "true or false")

    def group(self, key: str) -> int | None:
        """A number of inputs; None for -1, which means all."""
        value = self._content.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < -1 or value == 0:
            self.refuse(key, "a positive number, such as 128, or -1")
        return None if value == -1 else value

    def block(self, key: str) -> tuple[int, int]:
        """Outputs and inputs of a block."""
        value = self._content.get(key)
        if isinstance(value, list) and len(value) == 2:
            rows, group = value
            if type(rows) is int and type(group) is int and min(rows, group) > 0:
                return rows, group
        return self.refuse(key, "two positive numbers, such as [128, 128]")

    def names(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty if the key is absent."""
        value = self._content.get(key) if self.has(key) else []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self.refuse(key, "a list of strings")
        return tuple(value)

    def section(self, key: str) -> "QuantSection":
        return QuantSection(self._content.get(key), self._name(key), self._file)

    def entries(self) -> tuple[str, ...]:
        return tuple(self._content)

    def where(self, key: str) -> str:
        """File and key, as messages begin."""
        return f"{self._file}: {self._name(key)}"

    def refuse(self, key: str, expected: str) -> NoReturn:
        raise ModelError(
            f"{self.where(key)} is {self._content.get(key)!r}; expected {expected}."
        )

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
