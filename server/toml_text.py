"""Values written as TOML."""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def toml_tables(tables: Mapping[str, Any], notes: Mapping[str, str]) -> str:
    """Tables of at most two levels. notes: dotted key -> a comment behind the value."""
    return "\n".join(line for name, table in tables.items() for line in _table(name, table, notes))


def _table(name: str, table: Mapping[str, Any], notes: Mapping[str, str]) -> Iterator[str]:
    inner = {key: value for key, value in table.items() if _is_table(name, value)}
    yield f"[{'.'.join(_key(part) for part in name.split('.'))}]"
    for key, value in table.items():
        if key not in inner:
            note = notes.get(f"{name}.{key}")
            yield _entry(key, value) + (f"  # {note}" if note else "")
    yield ""
    for key, value in inner.items():
        yield from _table(f"{name}.{key}", value, notes)


def _is_table(name: str, value: Any) -> bool:
    return isinstance(value, Mapping) and "." not in name


def _entry(key: str, value: Any) -> str:
    return f"# {_key(key)} is not set" if value is None else f"{_key(key)} = {toml_value(value)}"


def toml_value(value: Any) -> str:
    """One value; what TOML has no form for is written as a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        items = ", ".join(
            f"{_key(key)} = {toml_value(item)}" for key, item in value.items() if item is not None
        )
        return f"{{ {items} }}" if items else "{}"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if bare else json.dumps(key, ensure_ascii=False)
