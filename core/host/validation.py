"""Validation errors of pydantic as one sentence that a user can act on."""

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from jackfield.core.api import ConfigError
from jackfield.core.api.errors import nearest
from jackfield.core.host.config import HIDDEN, may_be_secret
from jackfield.core.host.origin import Key, Origin, dotted

M = TypeVar("M", bound=BaseModel)
SHOWN = 80
"""Characters of a refused value that a message shows."""


def validate(
    model: type[M], table: Any, where: Key, origins: Mapping[Key, Origin], owner: str = ""
) -> M:
    """The table as an instance of the model.

    where: the path of the table. owner: the plugin whose section it is. Raises one `ConfigError`
    that names every refused key with its value, its origin and its limit.
    """
    try:
        return model.model_validate(table)
    except ValidationError as failure:
        found = [_sentence(model, dict(error), where, origins) for error in _each(failure)]
    suffix = f" (section of {owner})" if owner else ""
    raise ConfigError("; ".join(found) + suffix)


def _each(failure: ValidationError) -> list[Any]:
    return list(failure.errors(include_url=False))


def _sentence(
    model: type[BaseModel], error: dict[str, Any], where: Key, origins: Mapping[Key, Origin]
) -> str:
    path = tuple(str(part) for part in error["loc"])
    name = dotted(where + path) or "the configuration"
    place = _origin(where + path, origins)
    if _is_unknown(model, error, path):
        return f"unknown key {name}{place}. {_hint(model, path)}"
    if error["type"] == "missing":
        return f"{name} is missing; it has no default"
    shown = HIDDEN if may_be_secret(where + path) else _short(error["input"])
    return f"{name} is {shown}{place}: {_limit(error)}"


def _limit(error: Mapping[str, Any]) -> str:
    if error["type"] in ("model_type", "dict_type"):
        return "should be a table"
    message = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message.replace("Input should", "should", 1)


def _is_unknown(model: type[BaseModel], error: Mapping[str, Any], path: Key) -> bool:
    if error["type"] == "extra_forbidden":
        return True
    return error["type"] == "dict_type" and path[-1] not in _siblings(model, path)


def _siblings(model: type[BaseModel], path: Key) -> list[str]:
    """The keys that are valid where the last part of the path stands."""
    parts = iter(path[:-1])
    for part in parts:
        field = model.model_fields.get(part)
        inner = _model_in(field.annotation) if field else None
        if field is None or inner is None:
            return []
        model = inner
        if get_origin(field.annotation) is dict:
            next(parts, None)
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _hint(model: type[BaseModel], path: Key) -> str:
    """The same key of another section, else the nearest key of this one."""
    if len(path) == 2:
        for section in model.model_fields:
            if path[1] in _siblings(model, (section, "")):
                return f"Did you mean {section}.{path[1]}?"
    return nearest(path[-1], _siblings(model, path))


def _origin(key: Key, origins: Mapping[Key, Origin]) -> str:
    """The origin of the key, or of the value that it is inside of."""
    for end in range(len(key), 0, -1):
        if key[:end] in origins:
            return f" (from {origins[key[:end]]})"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
