"""The effective configuration: flag over environment over file over default."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield.core.api import ConfigError
from jackfield.core.host.aliases import apply_aliases
from jackfield.core.host.config import SECTIONS, Config
from jackfield.core.host.environment import FILE_VARIABLE, read_environment
from jackfield.core.host.layers import merge, nest
from jackfield.core.host.origin import DEFAULT, Given, Key, Origin, dotted
from jackfield.core.host.toml_file import read_file
from jackfield.core.host.validation import validate


@dataclass(frozen=True)
class Resolved:
    """A configuration, and where each of its values came from, by dotted key.

    The defaults of the selected plugins' own sections are not in it; the selection adds them.
    """

    config: Config
    origins: Mapping[str, Origin]


def load_config(
    file: Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Resolved:
    """Merge all sources and validate the result.

    file: TOML; None = what JACKFIELD_CONFIG in `env` names, if anything. env: the environment
    variables. flags: dotted keys or aliases; None as a value means that the flag was not given.
    Raises `ConfigError` for anything unknown, contradictory or out of range, naming its origin.
    """
    variables = env or {}
    path = file if file is not None else _named_file(variables)
    below = merge(read_file(path) if path is not None else {}, read_environment(variables))
    given = merge(below, apply_aliases(flags or {}, below))
    return _resolve(given)


def _named_file(env: Mapping[str, str]) -> Path | None:
    name = env.get(FILE_VARIABLE)
    if name == "":
        raise ConfigError(f"{FILE_VARIABLE} is empty: it should name a file; unset it to use none")
    return None if name is None else Path(name)


def _resolve(given: Mapping[Key, Given]) -> Resolved:
    origins = {key: entry.origin for key, entry in given.items()}
    table = nest({key: entry.value for key, entry in given.items()})
    config = validate(Config, table, (), origins)
    defaults: dict[Key, Origin] = {
        (section, key): DEFAULT for section, model in SECTIONS.items() for key in model.model_fields
    }
    found = {dotted(key): origin for key, origin in {**defaults, **origins}.items()}
    return Resolved(config, found)
