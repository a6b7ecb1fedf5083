"""Values from environment variables: JACKFIELD_SECTION__KEY, or JACKFIELD_SECTION__PLUGIN__KEY."""

from collections.abc import Mapping
from typing import Any

from jackfield.core.api import ConfigError
from jackfield.core.api.errors import nearest
from jackfield.core.host.config import SECTIONS, core_keys, holds_plugins
from jackfield.core.host.layers import flatten, nest
from jackfield.core.host.origin import Given, Key, Layer, Origin
from jackfield.core.host.toml_file import parse_value

PREFIX = "JACKFIELD_"
FILE_VARIABLE = "JACKFIELD_CONFIG"
KEY_VARIABLE = "JACKFIELD_API_KEY"
OTHERS = frozenset(
    {FILE_VARIABLE, KEY_VARIABLE, "JACKFIELD_CACHE", "JACKFIELD_DEFAULT_WHEEL"}
)
"""Variables that are not named like the value that they set, if they set one."""
OPERATOR_KEYS: Key = ("server", "keys", "operator_keys")
"""What the variable of keys, and the flags of keys, set."""
TEXT_TYPES = (str, str | None)


def read_environment(variables: Mapping[str, str]) -> dict[Key, Given]:
    """The values of all variables with the prefix; a name that means nothing is a `ConfigError`."""
    values: dict[Key, Given] = {}
    for name in sorted(variables):
        if name.startswith(PREFIX) and name not in OTHERS:
            values.update(_values(name, variables[name]))
    if KEY_VARIABLE in variables:
        keys = variables[KEY_VARIABLE].replace(",", " ").split()
        if not keys:
            raise ConfigError(f"{KEY_VARIABLE} holds no key; unset it to let everybody in")
        values[OPERATOR_KEYS] = Given(keys, Origin(Layer.ENVIRONMENT, KEY_VARIABLE))
    return values


def _values(name: str, text: str) -> dict[Key, Given]:
    key = _key(name)
    origin = Origin(Layer.ENVIRONMENT, name)
    flat = flatten(nest({key: read_text(key, text)}))
    return {inner: Given(value, origin) for inner, value in flat.items()}


def _key(name: str) -> Key:
    key = tuple(part.lower() for part in name.removeprefix(PREFIX).split("__"))
    known = key[0] in SECTIONS and len(key) in (2, 3) and all(key)
    if not known or (len(key) == 3 and not holds_plugins(key[0])):
        raise ConfigError(
            f"unknown environment variable {name}. {nearest(name, _known_names())} A value of the "
            f"configuration is {PREFIX}SECTION__KEY"
        )
    return key


def _known_names() -> list[str]:
    keys = [PREFIX + key.replace(".", "__").upper() for key in core_keys()]
    return [*keys, *OTHERS]


def read_text(key: Key, text: str) -> Any:
    """The value that a text means for the key: for keys that hold a text, the text itself."""
    if _holds_text(key) and not text.startswith(("'", '"')):
        return text
    return parse_value(text)


def _holds_text(key: Key) -> bool:
    section = SECTIONS.get(key[0])
    field = section.model_fields.get(key[-1]) if section and len(key) == 2 else None
    return field is not None and field.annotation in TEXT_TYPES
