"""Imports the plugins that the configuration names, and says who is to blame when one fails."""

from importlib.metadata import EntryPoint
from typing import Any, NamedTuple

from jackfield.core.api import (
    API_VERSION,
    PluginConflict,
    PluginLoadError,
    PluginNotFound,
    PluginVersionError,
)
from jackfield.core.api.errors import nearest
from jackfield.core.host.contract import check_class
from jackfield.core.host.discover import Catalogue, Found, noun, split_name


class Loaded(NamedTuple):
    """A class that keeps its kind's contract, and the entry point that gave it."""

    cls: type
    found: Found


def load(kind: str, name: str, catalogue: Catalogue) -> Loaded:
    """Import the plugin that "name" or "distribution:name" means.

    Raises `PluginNotFound`, `PluginConflict`, `PluginVersionError`, `PluginLoadError` or
    `PluginContractError`.
    """
    return load_found(choose(kind, name, catalogue))


def choose(kind: str, name: str, catalogue: Catalogue) -> Found:
    """The one installed entry point that the name means."""
    candidates = catalogue.named(name)
    if len(candidates) > 1:
        raise PluginConflict(conflict(candidates))
    if candidates:
        return candidates[0]
    foreign = catalogue.foreign_named(name)
    if foreign:
        raise PluginVersionError(f"{foreign[0]} {foreign_reason(foreign[0])}")
    distribution, bare = split_name(name)
    known = catalogue.names()
    if distribution is not None:
        known = [f"{found.distribution}:{found.name}" for found in catalogue.usable]
    raise PluginNotFound(
        f"no installed distribution provides the {noun(kind)} {name!r}. "
        f"{nearest(name if distribution else bare, known)}"
    )


def foreign_reason(found: Found) -> str:
    """Why an entry point of another version cannot be used."""
    return (
        f"speaks version {found.api_version} of the plugin API, this host version {API_VERSION}; "
        f"install a release of {found.distribution} for version {API_VERSION}, or choose another"
    )


def conflict(candidates: list[Found]) -> str:
    """Who provides one name, and how to choose."""
    first = candidates[0]
    owners = sorted({found.distribution for found in candidates})
    listed = ", ".join(f"{c.distribution} {c.version} ({c.path})" for c in candidates)
    if len(owners) == 1:
        return (
            f"the {noun(first.kind)} {first.name!r} is provided more than once by one "
            f"distribution: {listed}; uninstall all but one"
        )
    ways = " or ".join(f'"{owner}:{first.name}"' for owner in owners)
    return (
        f"the {noun(first.kind)} {first.name!r} is provided by several distributions: {listed}; "
        f"write {ways} to choose one"
    )


def load_found(found: Found) -> Loaded:
    """Import one entry point, whatever it raises, and check what it gives."""
    return Loaded(check_class(found, _import(found)), found)


def _import(found: Found) -> Any:
    group = f"jackfield.v{found.api_version}.{found.kind}"
    try:
        return EntryPoint(found.name, found.value, group).load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin that calls sys.exit must not end the host unexplained
        raise PluginLoadError(
            f"{found} cannot be imported: {cause(error)}; uninstall it or choose another"
        ) from error


def cause(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
