"""Typed reading of a model's config.json."""

from collections.abc import Mapping
from typing import Any, NoReturn

from jackfield.core.api.errors import ModelError


class ConfigReader:
    """Reads keys of one mapping; null counts as absent.

    Every method raises ModelError that names the key, its value and what is expected. A key that
    is read without a default must be there.
    """

    def __init__(self, config: Mapping[str, Any], prefix: str = "") -> None:
        self._config = config
        self._prefix = prefix

    def has(self, key: str) -> bool:
        """Whether the key holds something other than null."""
        return self._config.get(key) is not None

    def is_null(self, key: str) -> bool:
        """Whether the key is there and says null, for keys where that is not the default."""
        return key in self._config and self._config[key] is None

    def integer(self, key: str, default: int | None = None, minimum: int = 1) -> int:
        """An integer that is not below the minimum."""
        expected = f"an integer of at least {minimum}"
        value = self._value(key, default, expected)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            self.refuse(key, expected)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._value(key, default, "a positive number")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            self.refuse(key, "a positive number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self._value(key, default, "a string")
        if not isinstance(value, str):
            self.refuse(key, "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when the key is absent."""
        value = self._value(key, [], "a list of strings")
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            self.refuse(key, "a list of strings")
        return tuple(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers of at least 0; empty when the key is absent."""
        expected = "a list of integers of at least 0"
        value = self._value(key, [], expected)
        if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
            self.refuse(key, expected)
        return tuple(value)

    def section(self, key: str) -> "ConfigReader":
        """The reader of a nested mapping; of an empty one when the key is absent."""
        value = self._value(key, {}, "a mapping")
        if not isinstance(value, dict):
            self.refuse(key, "a mapping")
        return ConfigReader(value, f"{self._prefix}{key}.")

    def nested(self) -> tuple[str, ...]:
        """Keys that hold mappings."""
        return tuple(key for key, value in self._config.items() if isinstance(value, Mapping))

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise the ModelError for a key whose value cannot be used."""
        raise ModelError(
            f"config.json: {self._prefix}{key} is {self._config.get(key)!r}; expected {expected}."
        )

    def _value(self, key: str, default: Any, expected: str) -> Any:
        if self.has(key):
            return self._config[key]
        if default is None:
            raise ModelError(f"config.json lacks {self._prefix}{key}; expected {expected}.")
        return default
