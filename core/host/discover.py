"""Which plugins are installed, from the metadata of distributions; nothing is imported."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from typing import NamedTuple

from jackfield.core.api import API_VERSION, KINDS, PluginLoadError

GROUP = re.compile(r"jackfield\.v(\d+)\.(\w+)")
MARK = "jackfield.v"


def noun(kind: str) -> str:
    """What one plugin of the kind is called in messages."""
    return f"{kind.removesuffix('s')} plugin"


class Found(NamedTuple):
    """One entry point: `name` of `kind` is the object `value` of a distribution.

    api_version: which version of the plugin contract it speaks. path: where the distribution's
    metadata lies.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str
    api_version: int
    path: str

    def __str__(self) -> str:
        return (
            f"the {noun(self.kind)} {self.name!r} ({self.value}, from {self.distribution} "
            f"{self.version})"
        )


@dataclass(frozen=True)
class Catalogue:
    """What is installed of one kind. `usable` speaks this host's version, `foreign` does not."""

    kind: str
    usable: tuple[Found, ...]
    foreign: tuple[Found, ...]

    def named(self, name: str) -> list[Found]:
        """Usable entries that "name" or "distribution:name" may mean."""
        return _matching(self.usable, name)

    def foreign_named(self, name: str) -> list[Found]:
        """Entries of that name that speak another version."""
        return _matching(self.foreign, name)

    def names(self) -> list[str]:
        """The names of all usable entries, each once."""
        return sorted({found.name for found in self.usable})


Catalogues = Mapping[str, Catalogue]
"""Kind -> what is installed of it."""


def _matching(entries: Iterable[Found], name: str) -> list[Found]:
    distribution, bare = split_name(name)
    return [
        found
        for found in entries
        if found.name == bare
        and (distribution is None or _normal(distribution) == _normal(found.distribution))
    ]


def split_name(name: str) -> tuple[str | None, str]:
    """Distribution (None if not said) and plugin of "name" or "distribution:name"."""
    distribution, colon, bare = name.rpartition(":")
    return (distribution if colon else None), bare


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def discover(kind: str) -> Catalogue:
    """What is installed of one kind."""
    return discover_all()[kind]


def discover_all() -> Catalogues:
    """What is installed of every kind, in one pass over `sys.path`.

    One installation that is seen twice counts once; two of one distribution both count.
    """
    entries: dict[tuple[str, ...], Found] = {}
    for distribution in distributions():
        for found in _entries(distribution):
            identity = (found.kind, found.name, found.value, _normal(found.distribution))
            entries.setdefault((*identity, found.version, str(found.api_version)), found)
    return {kind: _catalogue(kind, entries.values()) for kind in KINDS}


def _catalogue(kind: str, entries: Iterable[Found]) -> Catalogue:
    ours = sorted(found for found in entries if found.kind == kind)
    return Catalogue(
        kind,
        tuple(found for found in ours if found.api_version == API_VERSION),
        tuple(found for found in ours if found.api_version != API_VERSION),
    )


def _entries(distribution: Distribution) -> Iterator[Found]:
    if MARK not in (distribution.read_text("entry_points.txt") or ""):
        return
    path = str(getattr(distribution, "_path", "")) or str(distribution.locate_file(""))
    try:
        points = list(distribution.entry_points)
    except Exception as error:
        raise PluginLoadError(
            f"{path} has an entry_points.txt that cannot be read ({error}); reinstall it"
        ) from error
    for point in points:
        if group := GROUP.fullmatch(point.group):
            name, version = distribution.metadata["Name"], distribution.version
            yield Found(group[2], point.name, point.value, name, version, int(group[1]), path)
